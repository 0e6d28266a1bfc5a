"""A format's name leads to its numbers."""

from __future__ import annotations

import numpy as np
import pytest

from mileage.quant.floats import fake_fp8, fake_nvfp4
from mileage.quant.formats import FORMATS, Values, format_named
from mileage.quant.ggml import fake_ggml
from mileage.quant.integers import fake_int
from mileage.quant.quantised import quantised
from mileage.quant.ranges import ranges_of

VALUES: Values = np.random.default_rng(5).standard_normal((70, 2, 64)).astype(np.float32)
RANGES = ranges_of([VALUES])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("f16", VALUES.astype(np.float16)),
        ("int8-head", fake_int(VALUES, bits=8, scope="head", ranges=RANGES)),
        ("int3-channel-g32", fake_int(VALUES, bits=3, scope="channel", group=32, symmetric=False)),
        ("int4-token-g32-sym", fake_int(VALUES, bits=4, scope="token", group=32)),
        ("e5m2", fake_fp8(VALUES, kind="e5m2")),
        ("e4m3-tensor", fake_fp8(VALUES, kind="e4m3", scope="tensor", ranges=RANGES)),
        ("nvfp4", fake_nvfp4(VALUES, RANGES)),
        ("q5_1", fake_ggml(VALUES, "q5_1")),
    ],
)
def test_a_name_leads_to_its_numbers(name: str, expected: Values) -> None:
    assert (quantised(VALUES, format_named(name), RANGES) == expected).all()


@pytest.mark.parametrize("name", [n for n in FORMATS if format_named(n).static])
def test_scales_fixed_beforehand_are_not_guessed(name: str) -> None:
    with pytest.raises(ValueError, match="ranges"):
        quantised(VALUES, format_named(name))


@pytest.mark.parametrize("family", ["token-g32", "channel-g32", "token-g64"])
def test_each_bit_more_halves_the_error(family: str) -> None:
    errors = [
        float(np.square(quantised(VALUES, format_named(f"int{b}-{family}")) - VALUES).mean())
        for b in (3, 4, 5, 6)
    ]

    for more, less in zip(errors[1:], errors, strict=False):
        assert 3.0 < less / more < 6.0  # of squares; (2^(b+1) - 1)^2 / (2^b - 1)^2 steps
