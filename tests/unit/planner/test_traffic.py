"""Traffic: parts of a trace, and the requests that each tuning asks for."""

from __future__ import annotations

import pytest

from mileage.core.errors import ConfigError
from mileage.planner.traffic import Traffic
from mileage.workload.trace_request import TraceRequest

REQUESTS = [
    TraceRequest(
        arrived_s=float(at),
        prompt_tokens=100 + at,
        output_tokens=10,
        prefix_blocks=(1, 2, 10 + at) if at % 2 else (),
        block_tokens=32 if at % 2 else 0,
        adapter=("law", None, "med")[at % 3],
    )
    for at in range(9)
]


def test_a_part_has_the_same_requests_at_the_same_times() -> None:
    part = Traffic.of(REQUESTS).part(2, 6)
    assert list(part.requests("lora")) == REQUESTS[2:6]
    assert part.span_s == 3.0
    assert part.output_tokens == 40
    whole = Traffic.of(REQUESTS)
    assert whole.part(0, 9) is whole


def test_adapters_are_those_of_the_tuning() -> None:
    traffic = Traffic.of(REQUESTS)
    assert traffic.adapters == ("law", "med")
    assert {each.adapter for each in traffic.requests()} == {None}
    assert [each.model for each in traffic.requests("full")][:3] == ["law", "law", "med"]


def test_what_a_cache_may_have_is_no_work_for_sure() -> None:
    assert Traffic.of(REQUESTS).uncached_tokens[:4].tolist() == [100, 5, 102, 7]


def test_no_request_is_no_traffic() -> None:
    with pytest.raises(ConfigError):
        Traffic.of([])
