"""Metric families of targets and budgets, which the fleet has as a whole."""

from __future__ import annotations

from mileage.gateway.admin.fleet import Fleet
from mileage.gateway.admin.spend import budget_rows
from mileage.gateway.admin.targets import newest_governor, target_rows
from mileage.measure.metrics import Families, FamilySnapshot, Gauge

__all__ = ["GovernedMetrics", "governed_families"]

_ACCOUNT = ("tenant", "unit", "period")


class GovernedMetrics(Families):
    """One set of families, filled from scratch for each scrape."""

    def __init__(self) -> None:
        self.target = Gauge(
            "mileage_target_seconds",
            "Latency targets in force: ttft, itl; of models without targets of their own for the "
            "model `*`.",
            ("model", "target"),
        )
        self.amount = Gauge(
            "mileage_budget_amount",
            "What may be spent in each period, in the unit: usd, tokens, gpu_s (GPU-seconds).",
            _ACCOUNT,
        )
        self.spent = Gauge(
            "mileage_budget_spent", "What was spent in the present period, in the unit.", _ACCOUNT
        )
        self.reserved = Gauge(
            "mileage_budget_reserved", "What requests on their way may cost, in the unit.", _ACCOUNT
        )
        self.left = Gauge(
            "mileage_budget_left",
            "What is left of the present period's budget, what is reserved taken off, in the unit.",
            _ACCOUNT,
        )
        self.renews = Gauge(
            "mileage_budget_renews_timestamp_seconds",
            "When the next period of the budget begins, since 1970.",
            _ACCOUNT,
        )


def governed_families(fleet: Fleet) -> list[FamilySnapshot]:
    """The families that have a value."""
    metrics = GovernedMetrics()
    governor = newest_governor(fleet.reports())
    for row in target_rows(governor.slo) if governor is not None else ():
        for target, target_s in (("ttft", row.ttft_s), ("itl", row.itl_s)):
            if target_s is not None:
                metrics.target.set(target_s, (row.model or "*", target))
    for budget in budget_rows(fleet.budget_states()):
        labels = (budget.tenant, budget.unit, budget.per)
        metrics.amount.set(budget.amount, labels)
        metrics.spent.set(budget.spent, labels)
        metrics.reserved.set(budget.reserved, labels)
        metrics.left.set(budget.left, labels)
        metrics.renews.set(budget.renews_utc_s, labels)
    return [family for family in metrics.snapshot() if family.numbers]
