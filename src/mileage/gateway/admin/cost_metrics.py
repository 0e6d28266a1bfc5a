"""Metric families of costs: shares of GPU time, capacity, and OpenCost's names for an hour."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mileage.ledger.hourly_cost import HourlyCost
from mileage.measure.metrics import Counter, FamilySnapshot, Gauge

__all__ = ["CostFigures", "cost_families"]

_NS = 1e9


class CostFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Settled totals since the hour in which the gateway was started, in GPU-nanoseconds: `used` by
    tenant, model and phase; `there` by replica and state. `hour` is the last one that is settled;
    `settled_utc_s` is how far all is."""

    used: dict[tuple[str, str, str], int]
    there: dict[tuple[str, str], int]
    hour: Sequence[HourlyCost] = ()
    settled_utc_s: float | None = None


class _CostMetrics:
    """One set of families, filled from scratch."""

    def __init__(self) -> None:
        self.attributed = Counter(
            "mileage_attributed_gpu_seconds_total",
            "Settled GPU time by who used it, and for what: prefill, decode, recomputed (prompts"
            " lost by a preemption), failed (requests that did not end well).",
            ("tenant", "model", "phase"),
        )
        self.capacity = Counter(
            "mileage_capacity_gpu_seconds_total",
            "Settled GPU time that there was, while the replica was up and while it made ready.",
            ("replica", "state"),
        )
        self.idle = Counter(
            "mileage_idle_gpu_seconds_total",
            "Of the capacity while up: time that nobody used.",
            ("replica",),
        )
        self.settled = Gauge(
            "mileage_costs_settled_timestamp_seconds",
            "Up to then GPU time is shared out for good.",
        )
        self.hourly = Gauge(
            "llm_total_hourly_cost",
            "USD that the model cost in the last settled hour, with its share of idle and warm-up"
            " time; all models sum to what all replicas cost.",
            ("model",),
        )
        self.per_million = Gauge(
            "llm_cost_per_million_tokens",
            "USD of that hour per million prompt and output tokens.",
            ("model",),
        )


def cost_families(figures: CostFigures | None) -> list[FamilySnapshot]:
    """The families; what is not known is absent."""
    if figures is None:
        return []
    metrics = _CostMetrics()
    for labels, gpu_ns in figures.used.items():
        metrics.attributed.add(labels, gpu_ns / _NS)
    for (replica, state), gpu_ns in figures.there.items():
        if state == "idle":
            metrics.idle.add((replica,), gpu_ns / _NS)
        else:
            metrics.capacity.add((replica, state), gpu_ns / _NS)
    if figures.settled_utc_s is not None:
        metrics.settled.set(figures.settled_utc_s)
    for cost in figures.hour:
        metrics.hourly.set(cost.usd, (cost.model,))
        if cost.usd_per_million_tokens is not None:
            metrics.per_million.set(cost.usd_per_million_tokens, (cost.model,))
    families = [family.snapshot() for family in vars(metrics).values()]
    return [family for family in families if family.numbers]
