"""Totals outlive their worker; what is old or gone does not come back."""

from __future__ import annotations

import pytest

from mileage.core.replica import ReplicaView
from mileage.gateway.admin.fleet import FleetState
from mileage.gateway.messages import Report
from mileage.measure.metrics import Counter, FamilySnapshot, Gauge, Histogram


def report(
    pid: int, requests: dict[str, float], *, at_s: float = 1.0, connections: float = 0
) -> Report:
    counter = Counter("mileage_requests_total", "Requests.", ("tenant",))
    histogram = Histogram("mileage_latency_seconds", "Latency.", ("tenant",), bounds=(1.0, 2.0))
    for tenant, number in requests.items():
        counter.add((tenant,), number)
        histogram.observe(1.5, (tenant,), int(number))
    gauge = Gauge("mileage_connections", "Connections.")
    gauge.set(connections)
    return Report(
        pid=pid,
        at_s=at_s,
        connections=0,
        in_flight=0,
        draining=False,
        ledger_ok=True,
        families=[each.snapshot() for each in (counter, histogram, gauge)],
        replicas=[],
    )


def family(state: FleetState, name: str) -> FamilySnapshot:
    return next(each for each in state.families() if each.name == name)


def test_totals_do_not_fall_when_a_worker_dies() -> None:
    state = FleetState()
    state.report(report(1, {"a": 10, "b": 5}, connections=3))
    state.report(report(2, {"a": 1}, connections=4))
    state.worker_gone(1)
    requests, latency = (
        family(state, "mileage_requests_total"),
        family(state, "mileage_latency_seconds"),
    )
    assert requests.numbers == {("a",): 11, ("b",): 5}
    assert latency.histograms[("a",)].counts == [0, 11, 0]
    assert latency.histograms[("a",)].sum == pytest.approx(16.5)
    assert family(state, "mileage_connections").numbers == {(): 4}
    assert [each.pid for each in state.reports()] == [2]


def test_a_new_worker_with_an_old_pid_adds_to_the_old_ones_totals() -> None:
    state = FleetState()
    state.report(report(1, {"a": 10}))
    state.worker_gone(1)
    state.report(report(1, {"a": 2}))
    assert family(state, "mileage_requests_total").numbers == {("a",): 12}


def test_a_worker_that_never_reported_leaves_nothing() -> None:
    state = FleetState()
    state.worker_gone(1)
    assert state.families() == []


def test_a_later_report_replaces_the_earlier_one() -> None:
    state = FleetState()
    state.report(report(1, {"a": 10}))
    assert family(state, "mileage_requests_total").numbers == {("a",): 10}
    state.report(report(1, {"a": 12}))
    assert family(state, "mileage_requests_total").numbers == {("a",): 12}


def test_what_dead_workers_leave_is_bounded_and_complete() -> None:
    state = FleetState(series_max=10)
    for generation in range(50):
        state.report(report(1, {f"tenant-{generation}": 2}))
        state.worker_gone(1)
    requests = family(state, "mileage_requests_total")
    assert len(requests.numbers) == 11
    assert sum(requests.numbers.values()) == 100
    assert requests.numbers[("other",)] == 80
    latency = family(state, "mileage_latency_seconds")
    assert len(latency.histograms) == 11
    assert sum(value.count for value in latency.histograms.values()) == 100
    assert latency.histograms[("other",)].sum == pytest.approx(120)


def test_the_newest_observation_counts() -> None:
    state = FleetState()
    state.view(ReplicaView(replica="a", observed_s=5.0, running=2))
    state.view(ReplicaView(replica="a", observed_s=4.0, running=9))
    assert [view.running for view in state.views()] == [2]
