"""Comparison of one metric: estimate, interval, verdict and sentence."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.measure.comparison import Comparison, compare

NOISE = (1.0, 1.1, 0.9, 1.05, 0.95, 1.02, 0.98, 1.0)
JITTER = (1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01, 0.99)


def compared(ratio: float, better: Literal["lower", "higher"] | None) -> Comparison:
    b = [x * j * ratio for x, j in zip(NOISE, JITTER, strict=True)]
    return compare("m", list(NOISE), b, better=better)


@pytest.mark.parametrize(
    ("ratio", "better", "verdict"),
    [
        pytest.param(0.9, "lower", "better", id="latency fell"),
        pytest.param(1.1, "lower", "worse", id="latency rose"),
        pytest.param(1.1, "higher", "better", id="throughput rose"),
        pytest.param(0.9, "higher", "worse", id="throughput fell"),
        pytest.param(1.001, "lower", "no_difference", id="within noise"),
        pytest.param(1.1, None, "no_difference", id="a figure that is not judged"),
    ],
)
def test_the_verdict_goes_by_what_is_better(
    ratio: float, better: Literal["lower", "higher"] | None, verdict: str
) -> None:
    assert compared(ratio, better).verdict == verdict


def test_the_estimate_is_the_geometric_mean_of_the_blocks_ratios() -> None:
    found = compare("m", [1.0, 2.0, 4.0, 8.0], [2.0, 2.0, 8.0, 8.0], better="lower")

    assert found.ratio == pytest.approx(math.sqrt(2.0))
    assert (found.a, found.b, found.blocks) == (3.75, 5.0, 4)
    logs = np.log([2.0, 1.0, 2.0, 1.0])
    half = 3.182446 * logs.std(ddof=1) / 2.0
    assert found.ci95_alone == pytest.approx(
        (math.exp(logs.mean() - half), math.exp(logs.mean() + half))
    )


def test_the_verdict_and_the_interval_are_never_at_odds() -> None:
    generator = np.random.default_rng(1)
    for _ in range(300):
        a, b = generator.lognormal(0.0, 0.1, 8).tolist(), generator.lognormal(0.05, 0.1, 8).tolist()
        found = compare("m", a, b, better="lower", level=0.02)
        assert found.ci95 is not None
        assert found.ci95_alone is not None
        outside = not found.ci95[0] <= 1.0 <= found.ci95[1]
        assert (found.verdict != "no_difference") == outside
        assert found.ci95[0] < found.ci95_alone[0] < found.ci95_alone[1] < found.ci95[1]


@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)), min_size=4, max_size=20))
def test_swapped_arms_give_the_inverse(pairs: list[tuple[float, float]]) -> None:
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    there, back = compare("m", a, b, better="lower"), compare("m", b, a, better="lower")
    assert there.ratio is not None
    assert back.ratio is not None
    assert there.ratio * back.ratio == pytest.approx(1.0)
    opposite = {"better": "worse", "worse": "better", "no_difference": "no_difference"}
    assert back.verdict == opposite[there.verdict]


def test_blocks_that_lack_an_arm_are_left_out_and_counted() -> None:
    a: list[float | None] = [1.0, None, 1.0, 1.1, 0.9, 1.0]
    b: list[float | None] = [1.0, 1.0, float("nan"), 1.1, 0.9, 1.0]

    found = compare("m", a, b, better="lower")

    assert (found.blocks, found.blocks_left_out, found.verdict) == (4, 2, "no_difference")


def test_too_few_blocks_are_no_comparison() -> None:
    found = compare("m", [1.0] * 3, [1.0] * 3, better="lower")

    assert found.verdict == "invalid"
    assert found.ci95 is None
    assert "3 blocks" in found.text


def test_a_figure_that_is_zero_in_some_block_is_compared_by_differences() -> None:
    found = compare("m", [0.0, 1.0, 2.0, 1.0], [0.5, 1.5, 2.5, 1.4], better="lower")

    assert found.ratio == pytest.approx(1.0 + 0.475)
    assert found.verdict == "worse"


def test_zero_everywhere_is_no_difference_and_zero_in_a_has_no_ratio() -> None:
    nothing = compare("m", [0.0] * 5, [0.0] * 5, better="lower")
    some = compare("m", [0.0] * 5, [1.0] * 5, better="lower")

    assert (nothing.verdict, nothing.ratio) == ("no_difference", None)
    assert some.verdict == "invalid"
    assert "no ratio" in some.text


def test_no_difference_tells_what_would_have_been_seen() -> None:
    """At 80 % power: simulated runs with just that effect are told apart in about 80 %."""
    found = compared(1.001, "lower")
    assert found.detectable_ratio is not None
    assert "no difference seen at this power" in found.text
    generator = np.random.default_rng(3)
    sd = float(np.log(JITTER).std(ddof=1))
    effect = math.log1p(found.detectable_ratio)
    runs = [
        compare("m", [1.0] * 8, np.exp(generator.normal(effect, sd, 8)).tolist(), better="lower")
        for _ in range(500)
    ]
    assert sum(run.verdict == "worse" for run in runs) / 500 == pytest.approx(0.8, abs=0.06)


def test_arms_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare("m", [1.0], [], better="lower")


def test_an_interval_without_a_useful_end_is_told_as_more_than_1000_percent() -> None:
    found = compare("ttft_p99_s", [1.0] * 4, [0.2, 9.0, 0.4, 5.0], better="lower", level=1e-6)

    assert "to more than +1000 %)" in found.text
    assert "a change of more than +1000 % would have been seen" in found.text
    assert "e+" not in found.text
