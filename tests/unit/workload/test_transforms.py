"""Transforms: windows, rates, samples and mixes do what they say and nothing else."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice, pairwise

import pytest

from mileage.core.errors import ConfigError
from mileage.workload.synthetic.config import ConversationsConfig, PrefixesConfig, SyntheticConfig
from mileage.workload.synthetic.generator import generate
from mileage.workload.synthetic.lengths import FixedLength
from mileage.workload.trace_request import TraceRequest
from mileage.workload.transforms import TraceView, mix, sample, view
from tests.support.statistics_by_hand import ks_passes


def requests(count: int = 10) -> list[TraceRequest]:
    return [
        TraceRequest(
            arrived_s=float(i),
            prompt_tokens=i + 1,
            output_tokens=1,
            tenant=f"t{i % 2}",
            model=f"m{i % 3}",
        )
        for i in range(count)
    ]


def prompts(how: TraceView) -> list[int]:
    return [r.prompt_tokens for r in view(requests(), how)]


@pytest.mark.parametrize(
    ("how", "found"),
    [
        pytest.param(TraceView(), list(range(1, 11)), id="all"),
        pytest.param(TraceView(start_s=3.0, duration_s=4.0), [4, 5, 6, 7], id="a window"),
        pytest.param(TraceView(start_s=7.5), [9, 10], id="from a moment on"),
        pytest.param(TraceView(duration_s=2.5), [1, 2, 3], id="to a moment"),
        pytest.param(TraceView(head=3), [1, 2, 3], id="the first ones"),
        pytest.param(TraceView(tenants=("t1",)), [2, 4, 6, 8, 10], id="of a tenant"),
        pytest.param(TraceView(tenants=("t1",), models=("m0",)), [4, 10], id="of both"),
        pytest.param(TraceView(tenants=("t1",), head=2), [2, 4], id="the first of a tenant"),
    ],
)
def test_parts(how: TraceView, found: list[int]) -> None:
    assert prompts(how) == found


def test_a_window_begins_at_0_and_another_rate_is_another_clock() -> None:
    found = view(requests(), TraceView(start_s=3.0, duration_s=4.0, rate_scale=2.0))
    assert [r.arrived_s for r in found] == [0.0, 0.5, 1.0, 1.5]


def test_views_are_lazy() -> None:
    def endless() -> Iterator[TraceRequest]:
        while True:
            yield from requests(1)

    assert len(list(islice(view(endless(), TraceView(sample_ratio=0.5, rate_scale=3.0)), 5))) == 5


def test_a_sample_of_poisson_arrivals_is_one_of_a_lower_rate() -> None:
    whole = generate(SyntheticConfig(rate_rps=10.0, requests=40_000))
    kept = list(sample(whole, 0.3, seed=1))
    assert abs(len(kept) - 12_000) < 4 * math.sqrt(40_000 * 0.3 * 0.7)
    gaps = [(b.arrived_s - a.arrived_s) * 3.0 for a, b in pairwise(kept)]
    assert ks_passes(gaps, lambda x: -math.expm1(-x))


def test_a_sample_keeps_conversations_whole() -> None:
    talks = ConversationsConfig(turns=3.0, think_s=1.0)
    whole = list(generate(SyntheticConfig(rate_rps=10.0, requests=6000, conversations=talks)))
    turns: dict[int | None, int] = defaultdict(int)
    for request in whole:
        turns[request.conversation] += 1
    kept: dict[int | None, int] = defaultdict(int)
    for request in sample(whole, 0.5, seed=1):
        kept[request.conversation] += 1
    assert {talk: turns[talk] for talk in kept} == kept
    assert len(kept) / len(turns) == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(len(turns)))
    other = {request.conversation for request in sample(whole, 0.5, seed=2)}
    assert other != set(kept)


def test_a_mix_is_in_order_and_keeps_what_is_shared_apart() -> None:
    prefixes = PrefixesConfig(count=3, tokens=FixedLength(tokens=64))
    config = SyntheticConfig(
        rate_rps=5.0, requests=300, prefixes=prefixes, conversations=ConversationsConfig(turns=2.0)
    )
    trace = list(generate(config))
    found = list(mix([trace, trace, trace]))
    assert len(found) == 900
    assert all(a.arrived_s <= b.arrived_s for a, b in pairwise(found))
    blocks = {block for r in trace for block in r.prefix_blocks}
    assert len({block for r in found for block in r.prefix_blocks}) == 3 * len(blocks)
    assert len({r.conversation for r in found}) == 3 * len({r.conversation for r in trace})
    assert trace == [r for r in found if set(r.prefix_blocks) <= blocks]


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"start_s": -1.0}, "start_s"),
        ({"duration_s": 0.0}, "duration_s"),
        ({"sample_ratio": 0.0}, "sample_ratio"),
        ({"sample_ratio": math.nan}, "sample_ratio"),
        ({"rate_scale": 0.0}, "rate_scale"),
        ({"head": 0}, "head"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, float], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TraceView(**fields)  # type: ignore[arg-type]
    assert caught.value.key == key
