"""Metric families of models that sleep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from mileage.gateway.model_seat import ModelState, ModelStatus
from mileage.measure.metrics import Counter, FamilySnapshot, Gauge

__all__ = ["model_families"]


def model_families(statuses: Iterable[ModelStatus]) -> list[FamilySnapshot]:
    """The families; none where no model can sleep."""
    one = ("replica",)
    state = Gauge(
        "mileage_model_state",
        "1 for what a model that can sleep is now: loaded, asleep, loading or unloading; else 0.",
        ("replica", "state"),
    )
    loads = Counter(
        "mileage_model_loads_total",
        "Times that a model was loaded or woken, and whether it went well: ok or failed.",
        ("replica", "result"),
    )
    load_s = Counter("mileage_model_load_seconds_total", "Time that those loads took.", one)
    unloads = Counter("mileage_model_unloads_total", "Times that it was unloaded.", one)
    asleep_s = Counter(
        "mileage_model_asleep_seconds_total", "Time that it was not loaded, and cost nothing.", one
    )
    resident = Gauge(
        "mileage_model_resident_bytes", "Memory of a model that this gateway has loaded.", one
    )
    waiting = Gauge("mileage_model_waiting", "Requests that are held until it is loaded.", one)
    for each in statuses:
        name = (each.replica,)
        for known in get_args(ModelState):
            state.set(int(each.state == known), (each.replica, known))
        loads.add((each.replica, "ok"), each.loads_total)
        loads.add((each.replica, "failed"), each.load_failures_total)
        load_s.add(name, each.load_seconds_total)
        unloads.add(name, each.unloads_total)
        asleep_s.add(name, each.saved_s)
        waiting.set(each.waiting, name)
        if each.memory_bytes is not None:
            resident.set(each.memory_bytes, name)
    families: tuple[Counter | Gauge, ...] = (
        *(state, loads, load_s, unloads, asleep_s, resident, waiting),
    )
    return [snapshot for family in families if (snapshot := family.snapshot()).numbers]
