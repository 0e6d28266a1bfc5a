"""Metric families of the experiment itself; those of its arms are the workers'."""

from __future__ import annotations

from mileage.gateway.admin.experiment import ExperimentStatus
from mileage.measure.metrics import Counter, FamilySnapshot, Gauge

__all__ = ["experiment_families"]

_STATES = ("running", "rolled_back", "promoted", "stopped")


def experiment_families(status: ExperimentStatus | None) -> list[FamilySnapshot]:
    """The families; none where there is no experiment."""
    if status is None or status.name is None:
        return []
    state = Gauge(
        "mileage_experiment_state",
        "1 for what the experiment is now: running, rolled_back, promoted or stopped; else 0.",
        ("experiment", "state"),
    )
    ratio = Gauge(
        "mileage_experiment_ratio", "Share of the traffic that arm b gets.", ("experiment",)
    )
    evidence = Gauge(
        "mileage_experiment_evidence",
        "Odds to 1 that arm b is worse; a canary is rolled back at 1 / false_alarm_ratio.",
        ("experiment",),
    )
    rollbacks = Counter(
        "mileage_experiment_rollbacks_total",
        "Canaries that were rolled back by themselves since the start.",
    )
    name = (status.name,)
    for each in _STATES:
        state.set(int(status.state == each), (status.name, each))
    if status.ratio is not None:
        ratio.set(status.ratio, name)
    if status.evidence is not None:
        evidence.set(status.evidence, name)
    rollbacks.add((), status.rollbacks_total)
    families: tuple[Counter | Gauge, ...] = (state, ratio, evidence, rollbacks)
    return [snapshot for family in families if (snapshot := family.snapshot()).numbers]
