"""Windows: the busiest parts of a trace, ever longer, and all of it at the end."""

from __future__ import annotations

from mileage.planner.traffic import Traffic
from mileage.planner.windows import Rung, rungs
from mileage.workload.trace_request import TraceRequest


def traffic(*parts: tuple[int, float, int]) -> Traffic:
    """Requests so far apart, of prompts so long, for each part."""
    requests, now_s = [], 0.0
    for count, gap_s, prompt_tokens in parts:
        for _ in range(count):
            now_s += gap_s
            requests.append(
                TraceRequest(arrived_s=now_s, prompt_tokens=prompt_tokens, output_tokens=10)
            )
    return Traffic.of(requests)


def test_the_busiest_window_brings_the_most_work() -> None:
    found = rungs(traffic((2000, 1.0, 100), (2000, 1.0, 900), (2000, 1.0, 100)))
    assert [each.whole for each in found] == [False, False, True]
    for each in found[:-1]:
        assert each.start >= 1999
        assert each.stop <= 4001
    assert found[-1] == Rung(start=0, stop=6000, share_ratio=1.0)
    assert found[0].stop - found[0].start < found[1].stop - found[1].start


def test_shares_are_of_requests() -> None:
    first, *_ = rungs(traffic((4000, 1.0, 100), (1000, 0.1, 100)), shrink=8)
    assert first.share_ratio == (first.stop - first.start) / 5000


def test_a_short_trace_is_one_window() -> None:
    assert [each.whole for each in rungs(traffic((500, 1.0, 100)))] == [True]


def test_what_comes_all_at_once_is_one_window() -> None:
    assert [each.whole for each in rungs(traffic((5000, 0.0, 100)))] == [True]
