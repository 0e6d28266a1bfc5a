"""The status of a replica is the worst that is known, and says what it does not know."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.replica import ReplicaView
from mileage.gateway.admin.fleet import FleetState, LedgerStatus, ReplicaHealth
from mileage.gateway.admin.processes import ProcessSample
from mileage.gateway.admin.reload import ConfigStatus, Reloaded
from mileage.gateway.admin.status import ReplicaRow, replica_rows, status
from mileage.gateway.messages import ReplicaStatus, Report


class Fleet(FleetState):
    """The fleet's state with nothing behind it."""

    def __init__(self) -> None:
        super().__init__()
        self._checked: list[ReplicaHealth] = []

    def check(self, health: ReplicaHealth) -> None:
        self._checked.append(health)

    def replica_health(self) -> list[ReplicaHealth]:
        return self._checked

    def ledger_status(self) -> LedgerStatus | None:
        return None

    def engine_pids(self) -> list[int]:
        return []

    def config_public(self) -> dict[str, Any]:
        return {}

    def config_status(self) -> ConfigStatus | None:
        return None

    async def reload(self) -> Reloaded:
        raise AssertionError

    def drain(self) -> None:
        raise AssertionError

    def set_replica(self, name: str, enabled: bool) -> bool:
        raise AssertionError


def fleet(
    health: ReplicaHealth | None, states: tuple[str, ...] = (), view: ReplicaView | None = None
) -> Fleet:
    made = Fleet()
    if health is not None:
        made.check(health)
    if view is not None:
        made.view(view)
    for pid, state in enumerate(states, 1):
        made.report(report(pid, [worker_status(state)]))
    return made


def worker_status(state: str, *, name: str = "a", in_flight: int = 2) -> ReplicaStatus:
    reason = None if state == "up" else f"it is {state}"
    return ReplicaStatus(name=name, state=state, models=("m",), in_flight=in_flight, reason=reason)


def report(pid: int, replicas: list[ReplicaStatus], *, at_s: float = 99.0) -> Report:
    return Report(
        pid=pid,
        at_s=at_s,
        connections=10,
        in_flight=4,
        draining=False,
        ledger_ok=True,
        families=[],
        replicas=replicas,
    )


def health(**values: Any) -> ReplicaHealth:
    return ReplicaHealth(name="a", kind="vllm", **values)


def only(made: Fleet, now_s: float = 100.0) -> ReplicaRow:
    (row,) = replica_rows(made, now_s)
    return row


@pytest.mark.parametrize(
    ("known", "states", "state"),
    [
        pytest.param(health(up=True), ("up", "up"), "up", id="all agree"),
        pytest.param(health(up=None), (), "unknown", id="not checked yet"),
        pytest.param(health(up=True), (), "up", id="checked, no worker yet"),
        pytest.param(health(up=False), ("up",), "down", id="the check fails before workers know"),
        pytest.param(health(up=True), ("up", "open"), "open", id="one breaker is open"),
        pytest.param(health(up=True), ("up", "half_open"), "half_open", id="one breaker tries"),
        pytest.param(health(up=True), ("open", "half_open"), "open", id="the worse of two"),
        pytest.param(health(up=True), ("down", "up"), "down", id="one worker finds it down"),
        pytest.param(health(up=False, enabled=False), ("open",), "disabled", id="disabled first"),
        pytest.param(None, ("up",), "up", id="known to workers only"),
    ],
)
def test_the_state_is_the_worst_known(
    known: ReplicaHealth | None, states: tuple[str, ...], state: str
) -> None:
    assert only(fleet(known, states)).state == state


def test_workers_that_disagree_are_counted() -> None:
    row = only(fleet(health(up=True), ("up", "open", "up")))
    assert row.worker_states == {"up": 2, "open": 1}
    assert row.in_flight == 6
    assert row.reason == "it is open"


def test_the_pollers_reason_comes_first() -> None:
    assert only(fleet(health(up=False, reason="refused"), ("down",))).reason == "refused"


def test_what_was_not_seen_is_unknown() -> None:
    row = only(fleet(health(up=None)))
    assert (row.in_flight, row.running, row.kv_cache_usage_ratio) == (None, None, None)
    assert (row.observation_age_s, row.check_age_s, row.stale) == (None, None, False)


@pytest.mark.parametrize(
    ("age_s", "stale"), [(0.0, False), (5.0, False), (5.1, True), (3_600.0, True)]
)
def test_an_old_observation_is_dated_and_marked(age_s: float, stale: bool) -> None:
    view = ReplicaView(replica="a", observed_s=100.0 - age_s, running=3, running_max=8)
    row = only(fleet(health(up=True, checked_s=98.0), view=view))
    assert row.observation_age_s == pytest.approx(age_s)
    assert (row.running, row.running_max, row.waiting) == (3, 8, None)
    assert (row.stale, row.check_age_s) == (stale, 2.0)


def test_replicas_of_the_configuration_come_first_and_all_are_told() -> None:
    made = Fleet()
    for name in ("z", "b"):
        made.check(ReplicaHealth(name=name, kind="vllm"))
    made.view(ReplicaView(replica="y", observed_s=1.0))
    made.report(report(1, [worker_status("up", name="c"), worker_status("up", name="b")]))
    assert [row.name for row in replica_rows(made, 100.0)] == ["z", "b", "c", "y"]


def test_processes_and_reports_are_put_together() -> None:
    made = Fleet()
    made.report(report(11, [], at_s=99.5))
    made.report(report(12, [], at_s=90.0))
    sampled = [
        ProcessSample(pid=10, role="supervisor", rss_bytes=5, cpu_s=1.0),
        ProcessSample(pid=11, role="worker", rss_bytes=7, cpu_s=2.0, cpu_ratio=0.5),
    ]
    found = status(
        made,
        sampled,
        now_s=100.0,
        now_utc_s=1_100.0,
        started_s=40.0,
        subscribers=0,
        draining=False,
    )
    supervisor, sampled_worker, other = found.processes
    assert (supervisor.role, supervisor.in_flight, supervisor.stale) == ("supervisor", None, False)
    assert (sampled_worker.pid, sampled_worker.rss_bytes, sampled_worker.in_flight) == (11, 7, 4)
    assert (sampled_worker.report_age_s, sampled_worker.stale) == (0.5, False)
    assert (other.pid, other.rss_bytes, other.stale) == (12, None, True)
    assert (found.connections, found.in_flight) == (20, 8)
    assert (found.uptime_s, found.started_utc_s) == (60.0, 1_040.0)
