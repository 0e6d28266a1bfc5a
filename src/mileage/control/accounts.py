"""Accounts of budgets: their names, their amounts as whole numbers, their calendar windows."""

from __future__ import annotations

import datetime as dt
import math

import msgspec

from mileage.policy.tenants import BudgetConfig, BudgetPeriod, BudgetUnit

__all__ = [
    "AccountSpend",
    "Window",
    "account_name",
    "amount_text",
    "budget_amount",
    "duration_text",
    "split_account",
    "window_at",
]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UTC_S_MAX = (dt.datetime(9999, 1, 1, tzinfo=dt.UTC) - _EPOCH).total_seconds()
_HOUR_S = 3600
_DAY_S = 86_400
_SCALE: dict[BudgetUnit, int] = {"tokens": 1, "gpu_s": 1_000_000_000, "usd": 1_000_000_000}


class Window(msgspec.Struct, frozen=True, gc=False):
    """One calendar period in UTC: its number, which is of its period's kind, and its bounds."""

    number: int
    starts_utc_s: int
    ends_utc_s: int


class AccountSpend(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one worker has spent of an account in a window so far, cumulative.

    `reserved` is what requests on their way may add at most; `excess` is what requests cost above
    what was reserved for them, a part of `spent`.
    """

    account: str
    window: int
    spent: int
    reserved: int = 0
    excess: int = 0


def account_name(tenant: str, budget: BudgetConfig) -> str:
    """'TENANT/UNIT/PERIOD'."""
    return f"{tenant}/{budget.unit}/{budget.per}"


def split_account(account: str) -> tuple[str, BudgetUnit, BudgetPeriod]:
    """Tenant (which may contain slashes), unit and period of an account's name."""
    tenant, unit, period = account.rsplit("/", 2)
    return tenant, unit, period  # type: ignore[return-value]


def budget_amount(budget: BudgetConfig) -> int:
    """The budget in whole tokens, GPU-nanoseconds or nano-USD, rounded down; at least 1."""
    return max(1, math.floor(budget.amount * _SCALE[budget.unit]))


def window_at(period: BudgetPeriod, utc_s: float) -> Window:
    """The window that the moment lies in. Moments before 1970 or after 9998 count as those."""
    second = math.floor(min(max(utc_s, 0.0), _UTC_S_MAX))
    if period == "hour":
        number = second // _HOUR_S
        return Window(number, number * _HOUR_S, (number + 1) * _HOUR_S)
    if period == "day":
        number = second // _DAY_S
        return Window(number, number * _DAY_S, (number + 1) * _DAY_S)
    moment = _EPOCH + dt.timedelta(seconds=second)
    number = (moment.year - 1970) * 12 + moment.month - 1
    return Window(number, _month_start_s(number), _month_start_s(number + 1))


def _month_start_s(number: int) -> int:
    start = dt.datetime(1970 + number // 12, number % 12 + 1, 1, tzinfo=dt.UTC)
    return int((start - _EPOCH).total_seconds())


def amount_text(unit: BudgetUnit, amount: int) -> str:
    """An amount for people: '1200 tokens', '0.5 GPU-seconds', '0.0021 USD'."""
    if unit == "tokens":
        return f"{amount} tokens"
    return f"{amount / _SCALE[unit]:.4g} {'USD' if unit == 'usd' else 'GPU-seconds'}"


def duration_text(seconds: float) -> str:
    """A duration for people, rounded up: '45 s', '12 min', '3 h', '9 days'."""
    for unit_s, unit in ((_DAY_S, "days"), (_HOUR_S, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{math.ceil(seconds / unit_s)} {unit}"
    return f"{max(1, math.ceil(seconds))} s"
