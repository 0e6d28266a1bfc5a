"""Hints of a stated accuracy: which requests are followed, and what is told of them."""

from __future__ import annotations

import random

import pytest

from mileage.core.errors import ConfigError
from mileage.sim.cache_hints import HintQuality, made_hints, returns
from mileage.sim.cache_trace import CacheTrace
from mileage.workload.trace_request import TraceRequest


def trace_of(*chains: tuple[int, ...], tokens: int = 0) -> CacheTrace:
    return CacheTrace(
        TraceRequest(
            arrived_s=float(i),
            prompt_tokens=tokens or len(chain) * 10,
            output_tokens=1,
            prefix_blocks=chain,
            block_tokens=10,
        )
        for i, chain in enumerate(chains)
    )


@pytest.mark.parametrize(
    ("trace", "followed"),
    [
        pytest.param(trace_of((1, 2), (1, 2, 3)), [True, False], id="the next turn"),
        pytest.param(trace_of((1, 2), (1, 2)), [True, False], id="the same again"),
        pytest.param(trace_of((1, 2), (1, 3)), [False, False], id="only the beginning in common"),
        pytest.param(trace_of((1, 2, 3), (1, 2)), [False, False], id="a shorter one"),
        pytest.param(
            trace_of((1, 2), (1, 3), tokens=15), [True, False], id="all but the partial block"
        ),
        pytest.param(trace_of((1,), (1,), tokens=5), [False, False], id="no full block"),
    ],
)
def test_which_requests_are_followed(trace: CacheTrace, followed: list[bool]) -> None:
    assert returns(trace) == followed


def pairs(count: int) -> CacheTrace:
    """Of three requests one is followed by the next."""
    chains = []
    for number in range(count):
        chains += [(3 * number,), (3 * number, 3 * number + 1), (3 * number + 2,)]
    return trace_of(*chains)


def told(quality: HintQuality) -> tuple[float, float, float]:
    """Share with a hint; what really followed a high and a low one."""
    trace = pairs(2000)
    hints = made_hints(trace, quality, random.Random(1))
    truth = returns(trace)
    known = [(h, t) for h, t in zip(hints, truth, strict=True) if h is not None]
    middle = sum(h for h, _ in known) / len(known)
    high = [t for h, t in known if h > middle]
    low = [t for h, t in known if h <= middle]
    return len(known) / len(hints), sum(high) / len(high), sum(low) / max(1, len(low))


def test_hints_say_what_follows_as_often_as_they_claim() -> None:
    quality = HintQuality(right_ratio=0.8, known_ratio=0.5)
    known, high, low = told(quality)
    yes, no = 0.8 / (0.8 + 2 * 0.2), 0.2 / (0.2 + 2 * 0.8)
    assert known == pytest.approx(0.5, abs=0.02)
    assert high == pytest.approx(yes, abs=0.04)
    assert low == pytest.approx(no, abs=0.04)
    hints = {h for h in made_hints(pairs(50), quality, random.Random(2)) if h is not None}
    assert sorted(hints) == pytest.approx([no, yes])


def test_wrong_hints_claim_what_they_are_not() -> None:
    _, high, low = told(HintQuality(right_ratio=0.1, claimed_ratio=0.9))
    assert high < 0.1
    assert low > 0.7


@pytest.mark.parametrize("right_ratio", [0.0, 1.0])
def test_certain_hints(right_ratio: float) -> None:
    quality = HintQuality(right_ratio=right_ratio)
    assert made_hints(pairs(1), quality, random.Random(1)) == [1.0, 0.0, 0.0]


def test_a_trace_with_hints_is_the_same_trace() -> None:
    trace = trace_of((1, 2), (1, 2, 3))
    hinted = trace.with_hints([0.7, None])
    assert [use.returns_ratio for use in hinted.uses] == [0.7, None]
    assert [use.returns_ratio for use in trace.uses] == [None, None]
    assert (hinted.chains, hinted.blocks) == (trace.chains, trace.blocks)
    with pytest.raises(ValueError, match="zip"):
        trace.with_hints([0.7])


@pytest.mark.parametrize("key", ["right_ratio", "claimed_ratio", "known_ratio"])
def test_qualities_that_cannot_be(key: str) -> None:
    with pytest.raises(ConfigError, match=f"hints.{key}"):
        HintQuality(**{"right_ratio": 0.5, key: 1.5})
