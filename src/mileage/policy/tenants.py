"""Tenants: what each may use: its share, its rates and its budgets."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range
from mileage.core.errors import ConfigError
from mileage.core.request import Priority

__all__ = ["BudgetConfig", "BudgetPeriod", "BudgetUnit", "TenantLimits"]

BudgetUnit = Literal["usd", "tokens", "gpu_s"]
BudgetPeriod = Literal["hour", "day", "month"]


class BudgetConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `[[tenants.NAME.budgets]]`."""

    amount: float
    """How much may be spent in each period."""
    unit: BudgetUnit
    """usd; tokens (prompt and output together); gpu_s (GPU-seconds of engine time)."""
    per: BudgetPeriod
    """Calendar periods in UTC: the hour, the day, the month."""

    def __post_init__(self) -> None:
        require_positive("tenants.*.budgets.amount", self.amount, self.unit)
        # What is spent is summed in 64 bits: tokens as they are, the others in billionths.
        most = 1e15 if self.unit == "tokens" else 1e9
        if self.amount > most:
            raise ConfigError("tenants.*.budgets.amount", self.amount, f"at most {most:g}")


class TenantLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one tenant may use. None: no limit of its own."""

    weight: float = 1.0
    """Share of the engines' work while several tenants want more than there is."""
    priority: Priority = "normal"
    """Class of its requests; a client may ask for a lower one with `x-mileage-priority`."""
    requests_per_min: float | None = None
    """Requests that it may send per minute, on average; a burst may be a minute's worth."""
    tokens_per_min: float | None = None
    """Prompt and output tokens per minute, on average; a burst may be a minute's worth."""
    concurrency_max: int | None = None
    """Requests of it in the gateway at once, held ones included."""
    budgets: tuple[BudgetConfig, ...] = ()
    """What it may spend; every one of them holds."""

    def __post_init__(self) -> None:
        if not (0 < self.weight < math.inf):
            raise ConfigError("tenants.*.weight", self.weight, "a positive number")
        for key in ("requests_per_min", "tokens_per_min"):
            value = getattr(self, key)
            if value is not None:
                # One in 16 hours: with less, a client would be told to come back in years.
                require_range(f"tenants.*.{key}", value, 1e-3, 1e12)
        if self.concurrency_max is not None:
            require_at_least("tenants.*.concurrency_max", self.concurrency_max, 1)
        kinds = [(budget.unit, budget.per) for budget in self.budgets]
        if len(set(kinds)) != len(kinds):
            raise ConfigError("tenants.*.budgets", kinds, "one budget for each unit and period")
