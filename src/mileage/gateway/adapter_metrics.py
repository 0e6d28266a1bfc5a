"""Metric families of LoRA adapters: loads, evictions, what is resident."""

from __future__ import annotations

from collections.abc import Mapping

from mileage.gateway.adapter_state import AdapterStates
from mileage.measure.metrics import Counter, Families, Gauge, Histogram
from mileage.policy.residency.keeper import AdapterChange

__all__ = ["AdapterMetrics"]

_LOAD_BOUNDS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0)


class AdapterMetrics(Families):
    """The supervisor's: one for all workers."""

    def __init__(self) -> None:
        self.load_s = Histogram(
            "mileage_adapter_load_seconds",
            "What it took to load a LoRA adapter, from the decision until it was seen to be there.",
            ("replica",),
            bounds=_LOAD_BOUNDS_S,
        )
        self.loads = Counter(
            "mileage_adapter_loads_total",
            "LoRA adapters loaded, by what for: demand, pinned, asked, prefetch.",
            ("replica", "reason"),
        )
        self.refused = Counter(
            "mileage_adapter_loads_failed_total",
            "Loads of LoRA adapters that an engine refused, or that were not there afterwards.",
            ("replica",),
        )
        self.evictions = Counter(
            "mileage_adapter_evictions_total",
            "LoRA adapters unloaded: for another one, as nobody used them (idle), or as asked.",
            ("replica", "reason"),
        )
        self.resident = Gauge(
            "mileage_adapters_resident", "LoRA adapters that the replica holds.", ("replica",)
        )
        self.slots = Gauge(
            "mileage_adapter_slots", "LoRA adapters that the replica can hold.", ("replica",)
        )
        self.waiting = Gauge(
            "mileage_adapter_requests_waiting", "Requests that wait for a LoRA adapter."
        )
        self.host_cache = Gauge(
            "mileage_adapter_host_cache_bytes",
            "Of LoRA adapter files, kept in this machine's memory for their next load.",
        )

    def changed(self, change: AdapterChange, errors: Mapping[str, str], took_s: float) -> None:
        """Count a change that was made, but for what `errors` tells of."""
        replica = change.replica
        for name in change.load:
            if name in errors:
                self.refused.add((replica,))
            else:
                self.loads.add((replica, change.reason))
                self.load_s.observe(took_s, (replica,))
        reason = "room" if change.load else change.reason
        if change.unload and not (change.load and len(errors) == len(change.load)):
            self.evictions.add((replica, reason), len(change.unload))

    def take(self, states: AdapterStates) -> None:
        """Bring what is told of the present up to date."""
        self.resident.values.clear()
        self.slots.values.clear()
        for each in states.replicas:
            self.resident.set(len(each.resident) if each.up else 0, (each.replica,))
            self.slots.set(each.slots, (each.replica,))
        self.waiting.set(sum(each.waiting for each in states.adapters))
        self.host_cache.set(states.host_cache_bytes)
