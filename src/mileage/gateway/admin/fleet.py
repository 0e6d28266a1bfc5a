"""Fleet: what the admin plane sees of the workers and replicas, and what it may ask of them."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from mileage.control.lending import BudgetState
from mileage.core.errors import MileageError
from mileage.core.replica import Adapter, ReplicaView
from mileage.gateway.adapter_desk import AdapterDesk
from mileage.gateway.adapter_state import AdapterStates
from mileage.gateway.admin.experiment import ExperimentDesk
from mileage.gateway.admin.reload import ConfigStatus, Reloaded
from mileage.gateway.admin.telemetry import TelemetryStatus
from mileage.gateway.admin.trial import Trial
from mileage.gateway.knob_status import KnobEvent, KnobStatus
from mileage.gateway.messages import Report
from mileage.gateway.model_desk import ModelDesk
from mileage.measure.metrics import FamilySnapshot, HistogramValue, merge

__all__ = ["Fleet", "FleetState", "LedgerStatus", "ReplicaHealth"]

_OTHER = "other"


class ReplicaHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One replica as the supervisor's poller sees it.

    `up` is None until the first check has ended; `loading`: it is not up, and was started: it makes
    ready; `asleep`: it is not loaded because nobody needs it. `url` carries no credentials.
    `checked_s` is monotonic. For people: `reason` says why the replica is not up,
    `observation_error` why it is not observed.
    """

    name: str
    kind: str
    url: str | None = None
    enabled: bool = True
    up: bool | None = None
    loading: bool = False
    asleep: bool = False
    models: tuple[str, ...] = ()
    adapters: tuple[Adapter, ...] = ()
    reason: str | None = None
    checked_s: float | None = None
    version: str | None = None
    observation_error: str | None = None


class LedgerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The feeder that moves request records from the log into the store.

    `lag_bytes` is log that is not stored yet. Totals are since the start: `rows_total` records
    stored, `lost_total` of them requests whose end is unknown. `unwritten_total` ends could not be
    written by their worker: such a request is lost where the log has its begin, else missing.
    `refused_total` ends cannot be held by the store, and are missing; `damaged_total` places of the
    log cannot be read. Engines told of `steps_total` steps; `steps_lost_total` are lost: their time
    is estimated. Of `engine_requests_total` requests engines told how long they waited;
    `engine_requests_lost_total` such records are lost. None is unknown.
    """

    ok: bool
    error: str | None = None
    lag_bytes: int | None = None
    rows_total: int | None = None
    lost_total: int | None = None
    refused_total: int | None = None
    unwritten_total: int | None = None
    damaged_total: int | None = None
    steps_total: int | None = None
    steps_lost_total: int | None = None
    engine_requests_total: int | None = None
    engine_requests_lost_total: int | None = None


class Fleet(Protocol):
    """What the supervisor gives the admin plane; every method but `reload` returns at once."""

    def reports(self) -> list[Report]:
        """The latest report of every live worker."""
        ...

    def families(self) -> list[FamilySnapshot]:
        """Metric families over all workers, also those that are gone."""
        ...

    def views(self) -> list[ReplicaView]:
        """The latest observation of every replica that was ever observed."""
        ...

    def replica_health(self) -> list[ReplicaHealth]:
        """Every configured replica, in the order of the configuration."""
        ...

    def ledger_status(self) -> LedgerStatus | None:
        """None where no ledger is configured."""
        ...

    def telemetry_status(self) -> TelemetryStatus | None:
        """How looking at GPUs goes; None while the gateway starts."""
        ...

    def budget_states(self) -> list[BudgetState]:
        """How the tenants' budgets stand, in the order of the configuration."""
        ...

    def model_desk(self) -> ModelDesk | None:
        """What has models loaded and unloaded; None where none can sleep."""
        ...

    def adapter_desk(self) -> AdapterDesk | None:
        """What has LoRA adapters loaded; None where nobody does."""
        ...

    def adapter_states(self) -> AdapterStates:
        """How LoRA adapters stand."""
        ...

    def experiment_desk(self) -> ExperimentDesk | None:
        """What runs experiments; None while the gateway starts."""
        ...

    def knob_statuses(self) -> list[KnobStatus]:
        """Engines whose own limits are set."""
        ...

    def knob_events(self) -> list[KnobEvent]:
        """What happened with them last, the oldest first."""
        ...

    def engine_pids(self) -> list[int]:
        """Processes of embedded engines."""
        ...

    def config_public(self) -> dict[str, Any]:
        """The configuration without any secret, ready for JSON."""
        ...

    def config_status(self) -> ConfigStatus | None:
        """Of the configuration in force; None where it can never change."""
        ...

    async def reload(self) -> Reloaded:
        """Read the configuration again and apply it, or nothing of it.

        Raises ConfigError where it is not in order, and MileageError where it cannot be applied
        now. No message has a secret.
        """
        ...

    async def try_settings(self, trial: Trial) -> Reloaded:
        """Put settings in force for a while, over what is written; without any: end the trial.

        Raises as `reload`; then all is as it was before.
        """
        ...

    def drain(self) -> None:
        """Finish what is in flight, refuse what is new, then exit. Asking twice changes nothing."""
        ...

    def set_replica(self, name: str, enabled: bool) -> bool:
        """Use the replica, or leave it alone; False where no replica has this name."""
        ...


class FleetState:
    """Latest reports and observations by name, and totals that outlive their worker.

    A worker that dies takes its counters along; without what it had counted the fleet's totals
    would fall and every rate over them would be wrong. So `worker_gone` keeps the counters and
    histograms of its last report. `series_max` bounds what is kept per family: past it, further
    label values are added to `other`.
    """

    def __init__(self, *, series_max: int = 2000) -> None:
        self._series_max = series_max
        self._reports: dict[int, Report] = {}
        self._retired: list[FamilySnapshot] = []
        self._views: dict[str, ReplicaView] = {}
        self._families: list[FamilySnapshot] | None = None

    def report(self, report: Report) -> None:
        """Take a live worker's report."""
        self._reports[report.pid] = report
        self._families = None

    def worker_gone(self, pid: int) -> None:
        """Keep what the worker had counted.

        To be called after the last message of its connection: a report that comes later is taken
        for a new worker with the same pid.
        """
        report = self._reports.pop(pid, None)
        if report is None:
            return
        lasting = [family for family in report.families if family.kind != "gauge"]
        self._retired = [
            _bounded(family, self._series_max) for family in merge([*self._retired, *lasting])
        ]
        self._families = None

    def view(self, view: ReplicaView) -> None:
        """Take an observation; an older one than is known is ignored."""
        known = self._views.get(view.replica)
        if known is None or known.observed_s <= view.observed_s:
            self._views[view.replica] = view

    def forget(self, replica: str) -> None:
        """The replica is gone: its observation is of no more use."""
        self._views.pop(replica, None)

    def reports(self) -> list[Report]:
        """The latest report of every live worker."""
        return list(self._reports.values())

    def views(self) -> list[ReplicaView]:
        """The latest observation of every replica."""
        return list(self._views.values())

    def telemetry_status(self) -> TelemetryStatus | None:
        """None, for whom nobody looks at GPUs."""
        return None

    def budget_states(self) -> list[BudgetState]:
        """None, for whom nobody keeps a treasury."""
        return []

    def model_desk(self) -> ModelDesk | None:
        """None, for whom no model can sleep."""
        return None

    def adapter_desk(self) -> AdapterDesk | None:
        """None, for whom nobody has adapters loaded."""
        return None

    def adapter_states(self) -> AdapterStates:
        """None of them, likewise."""
        return AdapterStates(adapters=[], replicas=[])

    def experiment_desk(self) -> ExperimentDesk | None:
        """None, for whom nobody runs experiments."""
        return None

    def knob_statuses(self) -> list[KnobStatus]:
        """None, for whom no engine's own limits are set."""
        return []

    def knob_events(self) -> list[KnobEvent]:
        """None of them, likewise."""
        return []

    async def try_settings(self, trial: Trial) -> Reloaded:
        """Not for whom nobody reloads."""
        raise MileageError("no settings can be tried here")

    def families(self) -> list[FamilySnapshot]:
        """Families over live and gone workers; not to be changed by the caller."""
        if self._families is None:
            live = [family for report in self._reports.values() for family in report.families]
            self._families = merge([*self._retired, *live])
        return self._families


def _bounded(family: FamilySnapshot, series_max: int) -> FamilySnapshot:
    """Fold the series past the bound, in order of appearance, into `other`."""
    other = (_OTHER,) * len(family.labels)
    for labels in [key for key in family.numbers if key != other][series_max:]:
        family.numbers[other] = family.numbers.get(other, 0) + family.numbers.pop(labels)
    for labels in [key for key in family.histograms if key != other][series_max:]:
        value = family.histograms.pop(labels)
        total = family.histograms.setdefault(other, HistogramValue([0] * len(value.counts)))
        total.counts = [a + b for a, b in zip(total.counts, value.counts, strict=True)]
        total.sum += value.sum
    return family
