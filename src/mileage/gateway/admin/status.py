"""Status: one document of the gateway's state for the control API and the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from mileage import __version__
from mileage.core.replica import ReplicaView
from mileage.gateway.admin.fleet import Fleet, LedgerStatus, ReplicaHealth
from mileage.gateway.admin.processes import ProcessSample, Role
from mileage.gateway.admin.reload import ConfigStatus
from mileage.gateway.admin.targets import limit_of
from mileage.gateway.admin.telemetry import TelemetryStatus
from mileage.gateway.knob_status import KnobStatus
from mileage.gateway.messages import ReplicaStatus, Report

__all__ = ["ProcessRow", "ReplicaRow", "Status", "replica_rows", "status"]

STALE_S = 5.0
"""An observation or a report that is older is marked as stale."""

ReplicaState: TypeAlias = Literal[
    "up", "down", "disabled", "asleep", "open", "half_open", "unknown"
]
"""disabled: by an operator; asleep: not loaded while nobody needs it; down: the health check fails;
open, half_open: the breaker of at least one worker; unknown: not checked yet."""


class ReplicaRow(msgspec.Struct, frozen=True, kw_only=True):
    """One replica: the poller's check, the workers' view of it, and the engine's own figures.

    `in_flight` is what this gateway has sent, over all workers; `running` and `waiting` are what
    the engine says, also of requests from elsewhere. `limit` is what it may run at once and `held`
    what waits for it here, over all workers; `limit_reason` and whether the policy of the limit
    failed are of one of them. `control`: how it stands with the engine's own limits; null where
    the gateway's limit is all there is. Null is unknown, or no limit.
    """

    name: str
    state: ReplicaState
    reason: str | None
    kind: str | None
    version: str | None
    url: str | None
    enabled: bool
    models: tuple[str, ...]
    worker_states: dict[str, int]
    in_flight: int | None
    limit: float | None
    limit_reason: str | None
    policy_failed: bool
    held: int | None
    running: int | None
    waiting: int | None
    running_max: int | None
    kv_cache_usage_ratio: float | None
    observation_age_s: float | None
    observation_error: str | None
    check_age_s: float | None
    stale: bool
    control: KnobStatus | None = None


class ProcessRow(msgspec.Struct, frozen=True, kw_only=True):
    """One process; the figures below `cpu_s` are of workers only."""

    pid: int
    role: Role
    rss_bytes: int | None = None
    cpu_ratio: float | None = None
    cpu_s: float | None = None
    report_age_s: float | None = None
    stale: bool = False
    connections: int | None = None
    in_flight: int | None = None
    draining: bool | None = None
    ledger_ok: bool | None = None
    config_version: int | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The whole state at one moment."""

    version: str
    now_utc_s: float
    started_utc_s: float
    uptime_s: float
    draining: bool
    connections: int | None
    in_flight: int | None
    held: int | None
    subscribers: int
    processes: list[ProcessRow]
    ledger: LedgerStatus | None
    telemetry: TelemetryStatus | None
    config: ConfigStatus | None
    replicas: list[ReplicaRow]


def status(
    fleet: Fleet,
    processes: Sequence[ProcessSample],
    *,
    now_s: float,
    now_utc_s: float,
    started_s: float,
    subscribers: int,
    draining: bool,
) -> Status:
    """The state now; `now_s` and `started_s` are monotonic. `draining`: a drain was asked for."""
    reports = fleet.reports()
    return Status(
        version=__version__,
        now_utc_s=round(now_utc_s, 3),
        started_utc_s=round(now_utc_s - (now_s - started_s), 3),
        uptime_s=round(now_s - started_s, 3),
        draining=draining or any(report.draining for report in reports),
        connections=sum(report.connections for report in reports) if reports else None,
        in_flight=sum(report.in_flight for report in reports) if reports else None,
        held=_held(reports, None),
        subscribers=subscribers,
        processes=_process_rows(reports, processes, now_s),
        ledger=fleet.ledger_status(),
        telemetry=fleet.telemetry_status(),
        config=fleet.config_status(),
        replicas=replica_rows(fleet, now_s),
    )


def replica_rows(fleet: Fleet, now_s: float) -> list[ReplicaRow]:
    """Every replica that is configured, reported or observed; the configured ones first."""
    health = {each.name: each for each in fleet.replica_health()}
    views = {view.replica: view for view in fleet.views()}
    seen_by_workers: dict[str, list[ReplicaStatus]] = {}
    knobs = {each.replica: each for each in fleet.knob_statuses()}
    reports = fleet.reports()
    for report in reports:
        for each in report.replicas:
            seen_by_workers.setdefault(each.name, []).append(each)
    names = [*health, *sorted((seen_by_workers.keys() | views.keys()) - health.keys())]
    return [
        _replica_row(
            name,
            health.get(name),
            seen_by_workers.get(name, []),
            views.get(name),
            _held(reports, name),
            knobs.get(name),
            now_s,
        )
        for name in names
    ]


def _replica_row(
    name: str,
    health: ReplicaHealth | None,
    statuses: Sequence[ReplicaStatus],
    view: ReplicaView | None,
    held: int | None,
    control: KnobStatus | None,
    now_s: float,
) -> ReplicaRow:
    worker_states: dict[str, int] = {}
    for each in statuses:
        worker_states[each.state] = worker_states.get(each.state, 0) + 1
    state = _state(health, worker_states)
    reason = health.reason if health is not None else None
    if reason is None and state != "up":
        reason = next((each.reason for each in statuses if each.reason), None)
    age_s = view.age_s(now_s) if view is not None else None
    checked_s = health.checked_s if health is not None else None
    models = health.models if health is not None else ()
    return ReplicaRow(
        name=name,
        state=state,
        reason=reason,
        kind=health.kind if health is not None else None,
        version=health.version if health is not None else None,
        url=health.url if health is not None else None,
        enabled=health is None or health.enabled,
        models=models or next((each.models for each in statuses if each.models), ()),
        worker_states=worker_states,
        in_flight=sum(each.in_flight for each in statuses) if statuses else None,
        limit=limit_of(statuses),
        limit_reason=next((each.limit_reason for each in statuses if each.limit_reason), None),
        policy_failed=any(each.policy_failed for each in statuses),
        held=held,
        running=view.running if view is not None else None,
        waiting=view.waiting if view is not None else None,
        running_max=view.running_max if view is not None else None,
        kv_cache_usage_ratio=view.kv_cache_usage_ratio if view is not None else None,
        observation_age_s=round(age_s, 3) if age_s is not None else None,
        observation_error=health.observation_error if health is not None else None,
        check_age_s=round(max(0.0, now_s - checked_s), 3) if checked_s is not None else None,
        stale=age_s is not None and age_s > STALE_S,
        control=control,
    )


def _held(reports: Sequence[Report], replica: str | None) -> int | None:
    """Requests that the workers' governors hold: in all, or the replica's part of them."""
    states = [r.governor.state for r in reports if r.governor and r.governor.state is not None]
    if not states:
        return None
    return sum(s.held if replica is None else s.waiting.get(replica, 0) for s in states)


def _state(health: ReplicaHealth | None, worker_states: dict[str, int]) -> ReplicaState:
    """The worst that is known, because that is what an operator must see."""
    if health is not None and not health.enabled:
        return "disabled"
    if health is not None and health.asleep:
        return "asleep"
    if (health is not None and health.up is False) or "down" in worker_states:
        return "down"
    if "open" in worker_states:
        return "open"
    if "half_open" in worker_states:
        return "half_open"
    if (health is not None and health.up) or "up" in worker_states:
        return "up"
    return "unknown"


def _process_rows(
    reports: Sequence[Report], processes: Sequence[ProcessSample], now_s: float
) -> list[ProcessRow]:
    by_pid = {report.pid: report for report in reports}
    rows = []
    for process in processes:
        row = ProcessRow(
            pid=process.pid,
            role=process.role,
            rss_bytes=process.rss_bytes,
            cpu_ratio=round(process.cpu_ratio, 4) if process.cpu_ratio is not None else None,
            cpu_s=round(process.cpu_s, 2),
        )
        report = by_pid.pop(process.pid, None)
        rows.append(row if report is None else _with_report(row, report, now_s))
    unsampled = (
        _with_report(ProcessRow(pid=report.pid, role="worker"), report, now_s)
        for report in by_pid.values()
    )
    return [*rows, *unsampled]


def _with_report(row: ProcessRow, report: Report, now_s: float) -> ProcessRow:
    age_s = max(0.0, now_s - report.at_s)
    return msgspec.structs.replace(
        row,
        report_age_s=round(age_s, 3),
        stale=age_s > STALE_S,
        connections=report.connections,
        in_flight=report.in_flight,
        draining=report.draining,
        ledger_ok=report.ledger_ok,
        config_version=report.config_version,
    )
