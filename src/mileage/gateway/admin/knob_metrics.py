"""Metric families of engines whose own limits are set."""

from __future__ import annotations

from collections.abc import Iterable

from mileage.gateway.knob_status import KnobStatus
from mileage.measure.metrics import Counter, Families, FamilySnapshot, Gauge

__all__ = ["KnobMetrics", "knob_families"]

_REPLICA = ("replica",)


class KnobMetrics(Families):
    """One set of families, filled from scratch for each scrape."""

    def __init__(self) -> None:
        self.up = Gauge(
            "mileage_engine_control_up",
            "1 where the engine's control answered well, else 0: then the gateway's own limit is "
            "all there is; absent before the first answer.",
            _REPLICA,
        )
        self.active_max = Gauge(
            "mileage_engine_control_active_max",
            "Requests that each rank of the engine may run at once: asked for, applied (in force "
            "in the rank that is furthest behind), start.",
            ("replica", "value"),
        )
        self.requests = Counter(
            "mileage_engine_control_requests_total",
            "Requests to the engine's control, by outcome: ok, or the kind of the fault "
            "(unreachable, timeout, wrong_token, absent, refused, engine_error).",
            ("replica", "outcome"),
        )
        self.restarts = Counter(
            "mileage_engine_control_restarts_total",
            "Times that another engine process was found at the control.",
            _REPLICA,
        )
        self.lapses = Counter(
            "mileage_engine_control_lapses_total",
            "Times that the lease of values ran out before it was renewed.",
            _REPLICA,
        )


def knob_families(statuses: Iterable[KnobStatus]) -> list[FamilySnapshot]:
    """The families; none where no engine's limits are set."""
    metrics = KnobMetrics()
    for each in statuses:
        name = (each.replica,)
        if each.state != "asking":
            metrics.up.set(int(each.state != "fault"), name)
        for value, cap in (("asked", each.asked), ("applied", each.applied), ("start", each.start)):
            if cap is not None:
                metrics.active_max.set(cap, (each.replica, value))
        for outcome, total in each.requests_total.items():
            metrics.requests.add((each.replica, outcome), total)
        metrics.restarts.add(name, each.restarts_total)
        metrics.lapses.add(name, each.lapses_total)
    return [family for family in metrics.snapshot() if family.numbers]
