"""Spend: what tenants used since the start, and how their budgets stand."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mileage.control.lending import BudgetState
from mileage.measure.metrics import FamilySnapshot

__all__ = ["TENANTS_MAX", "BudgetRow", "TenantRow", "budget_rows", "tenant_rows"]

TENANTS_MAX = 100
"""Tenants that one document has, those that used most; the others are in the metrics."""

_NANO = 1_000_000_000
_TOTALS = {
    "mileage_prompt_tokens_total": "prompt_tokens",
    "mileage_cached_tokens_total": "cached_tokens",
    "mileage_output_tokens_total": "output_tokens",
    "mileage_gpu_seconds_total": "gpu_s",
    "mileage_cost_usd_total": "cost_usd",
}
"""Family -> the column of its sum over models."""


class TenantRow(msgspec.Struct, kw_only=True):
    """What one tenant used since the start. Null: nobody told, or there is no price."""

    tenant: str
    requests: int = 0
    rejected: int = 0
    prompt_tokens: float | None = None
    cached_tokens: float | None = None
    output_tokens: float | None = None
    gpu_s: float | None = None
    cost_usd: float | None = None


class BudgetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One budget in its present period; amounts in `unit`: USD, tokens or GPU-seconds.

    `reserved` is for requests on their way. `left` is what may still be promised to others; below 0
    where requests came to cost more than they could be expected to. `uncertain` is held back for
    workers that died, until the ledger tells what they spent; `possible_overshoot` was lent though
    the ledger could not tell what was spent before.
    """

    tenant: str
    unit: str
    per: str
    amount: float
    spent: float
    reserved: float
    left: float
    uncertain: float
    possible_overshoot: float
    renews_utc_s: int


def tenant_rows(families: Sequence[FamilySnapshot]) -> tuple[list[TenantRow], int]:
    """Rows by use, the most first, and how many were left out."""
    rows: dict[str, TenantRow] = {}
    for family in families:
        if family.name == "mileage_requests_total":
            tenant_at, outcome_at = family.labels.index("tenant"), family.labels.index("outcome")
            for labels, number in family.numbers.items():
                row = _row(rows, labels[tenant_at])
                row.requests += int(number)
                if labels[outcome_at] == "rejected":
                    row.rejected += int(number)
        elif family.name in _TOTALS:
            column, tenant_at = _TOTALS[family.name], family.labels.index("tenant")
            for labels, number in family.numbers.items():
                row = _row(rows, labels[tenant_at])
                setattr(row, column, (getattr(row, column) or 0) + number)
    found = sorted(rows.values(), key=lambda row: (-(row.gpu_s or 0), -row.requests, row.tenant))
    return found[:TENANTS_MAX], max(0, len(found) - TENANTS_MAX)


def _row(rows: dict[str, TenantRow], tenant: str) -> TenantRow:
    row = rows.get(tenant)
    if row is None:
        row = rows[tenant] = TenantRow(tenant=tenant)
    return row


def budget_rows(states: Sequence[BudgetState]) -> list[BudgetRow]:
    """The budgets, in the order of the configuration."""
    return [_budget_row(state) for state in states]


def _budget_row(state: BudgetState) -> BudgetRow:
    scale = 1 if state.unit == "tokens" else _NANO
    left = state.amount - state.spent - state.reserved - state.uncertain
    return BudgetRow(
        tenant=state.tenant,
        unit=state.unit,
        per=state.per,
        amount=state.amount / scale,
        spent=state.spent / scale,
        reserved=state.reserved / scale,
        left=left / scale,
        uncertain=state.uncertain / scale,
        possible_overshoot=state.possible_overshoot / scale,
        renews_utc_s=state.window_ends_utc_s,
    )
