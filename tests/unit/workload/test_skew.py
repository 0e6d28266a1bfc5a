"""Skew: what a Zipf law of exponent 1.2 gives a workload, 80 % of its requests to 20 % of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable

import pytest

from mileage.workload.synthetic.generator import generate
from mileage.workload.synthetic.spelling import parse_synthetic
from mileage.workload.synthetic.zipf import Zipf
from mileage.workload.trace_request import TraceRequest

COUNT = 110
"""Entries at which the top fifth has four fifths; of 10 it has 58 %, of 1,000 89 %."""


def shares(text: str, key: Callable[[TraceRequest], Hashable]) -> tuple[float, float, int]:
    """What the most popular fifth has of the requests, what the least popular fifth has, and how
    many entries were asked for at all."""
    asked = Counter(key(request) for request in generate(parse_synthetic(text, seed=3)))
    numbers = sorted(asked.values(), reverse=True)
    total, fifth = sum(numbers), COUNT // 5
    numbers += [0] * (COUNT - len(numbers))
    return sum(numbers[:fifth]) / total, sum(numbers[-fifth:]) / total, len(asked)


@pytest.mark.parametrize(
    ("part", "key"),
    [
        pytest.param("contents", lambda r: r.content_id, id="prompts"),
        pytest.param("models", lambda r: r.model, id="models"),
        pytest.param("tenants", lambda r: r.tenant, id="tenants"),
        pytest.param("adapters", lambda r: r.adapter, id="adapters"),
    ],
)
def test_a_fifth_of_the_entries_has_four_fifths_of_the_requests(
    part: str, key: Callable[[TraceRequest], Hashable]
) -> None:
    top, tail, seen = shares(f"rate=1,requests=20000,{part}={COUNT}:1.2", key)
    assert top == pytest.approx(0.8, abs=0.015)
    assert tail == pytest.approx(0.024, abs=0.004)  # the long tail is asked for, too
    assert seen == COUNT


def test_prefixes_follow_the_same_law() -> None:
    text = f"rate=1,requests=20000,prefixes={COUNT}:160:1.2,block-tokens=16"
    top, tail, seen = shares(text, lambda request: request.prefix_blocks[0])
    assert top == pytest.approx(0.8, abs=0.015)
    assert tail == pytest.approx(0.024, abs=0.004)
    assert seen == COUNT


def test_the_law_itself_says_so() -> None:
    likely = Zipf(COUNT, 1.2).probabilities()
    assert sum(likely[: COUNT // 5]) == pytest.approx(0.80, abs=0.005)
    assert sum(likely[-COUNT // 5 :]) == pytest.approx(0.024, abs=0.001)
