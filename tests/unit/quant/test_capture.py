"""A capture's file: exact, the same bytes twice, and anything else is refused."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from mileage.core.errors import ConfigError
from mileage.quant.capture import (
    Capture,
    CaptureFacts,
    LayerCapture,
    capture_bytes,
    read_capture,
)

FACTS = CaptureFacts(
    model="toy",
    model_sha256="a" * 64,
    text_sha256="b" * 64,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    scale=8**-0.5,
    window_tokens=(5, 3),
)


def _capture() -> Capture:
    generator = np.random.default_rng(1)

    def values(heads: int) -> np.ndarray:
        return generator.standard_normal((8, heads, 8)).astype(np.float32)

    layers = tuple(LayerCapture(q=values(4), k=values(2), v=values(2)) for _ in range(2))
    return Capture(facts=FACTS, layers=layers)


def test_a_capture_is_read_back_exactly() -> None:
    capture = _capture()

    found = read_capture(capture_bytes(capture))

    assert found.facts == FACTS
    for one, two in zip(found.layers, capture.layers, strict=True):
        assert (one.q.tobytes(), one.k.tobytes(), one.v.tobytes()) == (
            two.q.tobytes(),
            two.k.tobytes(),
            two.v.tobytes(),
        )


def test_the_same_capture_has_the_same_bytes() -> None:
    assert capture_bytes(_capture()) == capture_bytes(_capture())


def test_windows_are_apart() -> None:
    windows = list(_capture().windows(1))

    assert [len(w.q) for w in windows] == [5, 3]
    assert (windows[1].k == _capture().layers[1].k[5:]).all()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"not a capture", id="text"),
        pytest.param(capture_bytes(_capture())[:500], id="cut short"),
        pytest.param(b"PK\x03\x04" + bytes(200), id="a damaged archive"),
    ],
)
def test_what_is_no_capture_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"--capture: got 'x\.npz', expected a capture"):
        read_capture(content, name="x.npz")


def test_layers_that_do_not_fit_the_facts_are_refused() -> None:
    capture = _capture()
    facts = msgspec.structs.replace(FACTS, window_tokens=(5, 4))
    content = capture_bytes(Capture(facts=facts, layers=capture.layers))

    with pytest.raises(ConfigError, match=r"layer 0 of shapes \(9, 4, 8\)"):
        read_capture(content)
