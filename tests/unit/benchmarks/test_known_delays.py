"""Known delays: what a stall does to each request, by hand."""

from __future__ import annotations

import pytest

from benchmarks.support.known_delays import (
    expected_through_stall,
    stalled_plan,
    streamed_plan,
    true_latencies,
    whole_plan,
)
from benchmarks.support.timed_server import Truth
from benchmarks.support.timed_upstream import ServerTruth
from mileage.measure.call_record import CallRecord


@pytest.mark.parametrize(
    ("due_s", "latency_s"),
    [
        pytest.param(1.0, 0.02, id="long before the stall"),
        pytest.param(4.99, 2.01, id="answered at the stall's end"),
        pytest.param(5.0, 2.02, id="scheduled as it begins"),
        pytest.param(6.5, 0.52, id="scheduled within it"),
        pytest.param(7.0, 0.02, id="scheduled as it ends"),
    ],
)
def test_a_stall_is_waited_for(due_s: float, latency_s: float) -> None:
    record = CallRecord(index=0, phase="measured", outcome="ok", scheduled_s=due_s)
    truth = ServerTruth(requests={}, stalls=[(105.0, 107.0)])
    found = expected_through_stall([record], truth, delay_s=0.02, zero_s=100.0)
    assert found == [pytest.approx(latency_s)]


def test_the_truth_counts_from_the_servers_reading() -> None:
    truth = Truth(read_s=10.0, written_s=[10.1, 10.15, 10.3])
    found = true_latencies([truth], stream=True)
    assert found["ttft_s"] == pytest.approx([0.1])
    assert found["itl_s"] == pytest.approx([0.05, 0.15])
    assert found["tpot_s"] == pytest.approx([0.1])
    assert found["e2e_s"] == pytest.approx([0.3])


def test_plans_are_on_schedule_and_the_same_for_a_seed() -> None:
    for plan in (whole_plan, streamed_plan):
        calls = plan(500.0, 1.0, seed=3)
        assert [call.scheduled_s for call in calls] == [n / 500 for n in range(500)]
        assert calls == plan(500.0, 1.0, seed=3)
        assert calls != plan(500.0, 1.0, seed=4)


def test_one_call_stops_the_server() -> None:
    calls = stalled_plan(100.0, 1.0, delay_s=0.02, stall_at_s=0.5, stall_s=2.0)
    assert [call.index for call in calls if b"stall_ms=2000" in call.body] == [50]
