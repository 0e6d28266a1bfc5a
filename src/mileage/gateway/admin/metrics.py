"""Metric families of the admin plane: replicas, ledger, processes; beside the workers' own."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import msgspec

from mileage import __version__
from mileage.gateway.admin.config_metrics import config_families
from mileage.gateway.admin.context_switches import SwitchKind
from mileage.gateway.admin.experiment_metrics import experiment_families
from mileage.gateway.admin.fleet import Fleet, LedgerStatus, ReplicaHealth
from mileage.gateway.admin.governor_metrics import governed_families
from mileage.gateway.admin.knob_metrics import knob_families
from mileage.gateway.admin.model_metrics import model_families
from mileage.gateway.admin.processes import ProcessSample, Role
from mileage.gateway.admin.telemetry import telemetry_families
from mileage.gateway.messages import Report
from mileage.measure.metrics import Counter, FamilySnapshot, Gauge

__all__ = ["VIEW_AGE_MAX_S", "AdminMetrics", "PlaneFigures", "families"]

VIEW_AGE_MAX_S = 15.0
"""The figures of an older observation are left out; its age goes on being told."""


class PlaneFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the admin plane knows of itself and of the processes."""

    uptime_s: float
    subscribers: int
    auth_failures: int
    processes: Sequence[ProcessSample]
    cpu_s_by_role: dict[Role, float]
    context_switches: dict[tuple[Role, SwitchKind], int] = {}
    memory_fragmentation_ratio: float | None = None
    """Of the host's free memory; None where it is not known."""


class AdminMetrics:
    """One set of families, filled from scratch for each scrape: nothing stale can stay behind."""

    def __init__(self) -> None:
        replica = ("replica",)
        self.build = Gauge(
            "mileage_build_info", "Version that runs; always 1.", ("version", "python")
        )
        self.uptime = Gauge("mileage_uptime_seconds", "Time since the admin plane started.")
        self.workers = Gauge("mileage_workers", "Worker processes that report.")
        self.report_age = Gauge(
            "mileage_worker_report_age_seconds", "Age of the oldest of the workers' latest reports."
        )
        self.up = Gauge(
            "mileage_replica_up",
            "1 where the replica's last health check passed, else 0; absent before the first.",
            replica,
        )
        self.enabled = Gauge(
            "mileage_replica_enabled", "0 where an operator has disabled the replica.", replica
        )
        self.running = Gauge(
            "mileage_replica_running", "Requests that the engine says it runs.", replica
        )
        self.waiting = Gauge(
            "mileage_replica_waiting", "Requests that wait inside the engine.", replica
        )
        self.running_max = Gauge(
            "mileage_replica_running_max", "Requests that the engine can run at once.", replica
        )
        self.kv_usage = Gauge(
            "mileage_replica_kv_cache_usage_ratio", "Share of the KV cache in use.", replica
        )
        self.view_age = Gauge(
            "mileage_replica_observation_age_seconds",
            "Age of the replica's last scrape; its figures are absent past 15 s.",
            replica,
        )
        self._ledger()
        self.rss = Gauge(
            "mileage_process_resident_memory_bytes", "Memory of the processes.", ("role",)
        )
        self.processes = Gauge("mileage_processes", "Processes that run.", ("role",))
        self.cpu = Counter(
            "mileage_process_cpu_seconds_total", "CPU time used by the processes.", ("role",)
        )
        self.context_switches = Counter(
            "mileage_process_context_switches_total",
            "Times that a thread left its core: voluntary (it waits) or involuntary (another one"
            " was to have it).",
            ("role", "kind"),
        )
        self.memory_fragmentation = Gauge(
            "mileage_host_memory_fragmentation_ratio",
            "Share of the host's free memory in pieces too small for a huge page of 2 MiB.",
        )
        self.subscribers = Gauge("mileage_admin_subscribers", "Open dashboards.")
        self.auth_failures = Counter(
            "mileage_admin_auth_failures_total", "Admin requests with a wrong token."
        )

    def _ledger(self) -> None:
        self.ledger_up = Gauge("mileage_ledger_up", "1 where request records reach the store.")
        self.ledger_rows = Counter(
            "mileage_ledger_rows_total", "Request records put into the store since the start."
        )
        self.ledger_lag_bytes = Gauge(
            "mileage_ledger_lag_bytes", "Request log that is not in the store yet."
        )
        self.ledger_lost = Counter(
            "mileage_ledger_lost_requests_total", "Requests whose worker died with them in flight."
        )
        self.ledger_refused = Counter(
            "mileage_ledger_refused_records_total",
            "Ends of requests that are missing in the store because it cannot hold them.",
        )
        self.ledger_unwritten = Counter(
            "mileage_ledger_unwritten_records_total",
            "Ends of requests that their worker could not write, as it told later.",
        )
        self.ledger_damaged = Counter(
            "mileage_ledger_damaged_places_total", "Places of the request log that are unreadable."
        )
        self.ledger_steps = Counter(
            "mileage_ledger_engine_steps_total", "Steps of engines that they told the ledger."
        )
        self.ledger_steps_lost = Counter(
            "mileage_ledger_engine_steps_lost_total",
            "Steps that engines could not tell: the GPU time of their windows is estimated.",
        )
        self.ledger_requests = Counter(
            "mileage_ledger_engine_requests_total",
            "Requests of which engines told the ledger their queue time and tokens.",
        )
        self.ledger_requests_lost = Counter(
            "mileage_ledger_engine_requests_lost_total",
            "Requests of which engines could not tell: their queue time is not known.",
        )

    def all(self) -> list[Counter | Gauge]:
        """Every family, in the order of exposition."""
        return [family for family in vars(self).values() if isinstance(family, (Counter, Gauge))]


def families(fleet: Fleet, plane: PlaneFigures, now_s: float) -> list[FamilySnapshot]:
    """The workers' families and the admin plane's own; what is not known is absent, never 0."""
    metrics = AdminMetrics()
    metrics.build.set(1, (__version__, platform.python_version()))
    metrics.uptime.set(plane.uptime_s)
    metrics.subscribers.set(plane.subscribers)
    metrics.auth_failures.add((), plane.auth_failures)
    _set_processes(metrics, plane)
    _set_workers(metrics, fleet.reports(), now_s)
    _set_health(metrics, fleet.replica_health())
    _set_views(metrics, fleet, now_s)
    _set_ledger(metrics, fleet.ledger_status())
    own = [family.snapshot() for family in metrics.all()]
    desk, models = fleet.experiment_desk(), fleet.model_desk()
    return [
        *fleet.families(),
        *(family for family in own if family.numbers),
        *config_families(fleet.config_status()),
        *governed_families(fleet),
        *knob_families(fleet.knob_statuses()),
        *experiment_families(None if desk is None else desk.status()),
        *model_families([] if models is None else models.statuses()),
        *telemetry_families(fleet.telemetry_status()),
    ]


def _set_processes(metrics: AdminMetrics, plane: PlaneFigures) -> None:
    for process in plane.processes:
        labels = (process.role,)
        metrics.rss.set(metrics.rss.values.get(labels, 0) + process.rss_bytes, labels)
        metrics.processes.set(metrics.processes.values.get(labels, 0) + 1, labels)
    for role, cpu_s in plane.cpu_s_by_role.items():
        metrics.cpu.add((role,), cpu_s)
    for (role, kind), count in plane.context_switches.items():
        metrics.context_switches.add((role, kind), count)
    if plane.memory_fragmentation_ratio is not None:
        metrics.memory_fragmentation.set(plane.memory_fragmentation_ratio)


def _set_workers(metrics: AdminMetrics, reports: Sequence[Report], now_s: float) -> None:
    metrics.workers.set(len(reports))
    if reports:
        metrics.report_age.set(max(0.0, now_s - min(report.at_s for report in reports)))


def _set_health(metrics: AdminMetrics, healths: Sequence[ReplicaHealth]) -> None:
    for health in healths:
        metrics.enabled.set(int(health.enabled), (health.name,))
        if health.up is not None:
            metrics.up.set(int(health.up), (health.name,))


def _set_views(metrics: AdminMetrics, fleet: Fleet, now_s: float) -> None:
    for view in fleet.views():
        labels = (view.replica,)
        metrics.view_age.set(view.age_s(now_s), labels)
        if view.age_s(now_s) > VIEW_AGE_MAX_S:
            continue
        for gauge, value in (
            (metrics.running, view.running),
            (metrics.waiting, view.waiting),
            (metrics.running_max, view.running_max),
            (metrics.kv_usage, view.kv_cache_usage_ratio),
        ):
            if value is not None:
                gauge.set(value, labels)


def _set_ledger(metrics: AdminMetrics, ledger: LedgerStatus | None) -> None:
    if ledger is None:
        return
    metrics.ledger_up.set(int(ledger.ok))
    if ledger.lag_bytes is not None:
        metrics.ledger_lag_bytes.set(ledger.lag_bytes)
    for counter, total in (
        (metrics.ledger_rows, ledger.rows_total),
        (metrics.ledger_lost, ledger.lost_total),
        (metrics.ledger_refused, ledger.refused_total),
        (metrics.ledger_unwritten, ledger.unwritten_total),
        (metrics.ledger_damaged, ledger.damaged_total),
        (metrics.ledger_steps, ledger.steps_total),
        (metrics.ledger_steps_lost, ledger.steps_lost_total),
        (metrics.ledger_requests, ledger.engine_requests_total),
        (metrics.ledger_requests_lost, ledger.engine_requests_lost_total),
    ):
        if total is not None:
            counter.add((), total)
