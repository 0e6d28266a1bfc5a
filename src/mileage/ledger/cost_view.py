"""CostView: the bill of one stretch of time as a page shows it: by account, and over time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from mileage.ledger.account_name import OTHERS, AccountNames
from mileage.ledger.bill import Account, Bill, make_bill
from mileage.ledger.bill_sums import Amount
from mileage.ledger.billing_config import IdleSpread, ReservationConfig
from mileage.ledger.calendar import HOUR_S, Period, period_bounds
from mileage.ledger.price_book import PriceBook
from mileage.ledger.usage_row import CapacityRow, UsageRow

__all__ = [
    "CostAccount",
    "CostAmount",
    "CostPeriod",
    "CostReplica",
    "CostView",
    "Period",
    "make_cost_view",
    "step_of",
]

_HOURS_MAX: Final = 72
"""A longer time is shown by days."""
_NANO: Final = 1_000_000_000


class CostAmount(msgspec.Struct, frozen=True, gc=False):
    """GPU time, and its price: null where a part of it has none."""

    gpu_ns: int
    usd: float | None


class CostAccount(msgspec.Struct, frozen=True, kw_only=True):
    """One account. `interval`: the true GPU-nanoseconds of its requests are between these, but for
    one case in twenty. `idle` is its share of idle and warm-up time, a part of its own figures."""

    name: str
    gpu_ns: int
    usd: float | None
    requests: int
    requests_failed: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    interval: tuple[int, int]
    idle: CostAmount


class CostPeriod(msgspec.Struct, frozen=True, kw_only=True):
    """An hour or a day: where its time and money went, and who used them."""

    since_utc_s: int
    where: dict[str, CostAmount]
    accounts: dict[str, CostAmount]


class CostReplica(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica was there for; `price`: who says what it costs, null where nobody does."""

    name: str
    gpu: str | None
    gpus: float
    total: CostAmount
    idle: CostAmount
    warmup: CostAmount
    price: str | None


class CostView(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `where` has prefill, decode, recomputed, failed, idle, warmup and unattributed,
    which sum to the total; so do the accounts and `idle_gpu_ns`.

    What ended after `settled_utc_s` is provisional; null: nothing has been settled yet.
    """

    by: str
    since_utc_s: int
    until_utc_s: int
    settled_utc_s: float | None
    step: Period
    gpu_ns_total: int
    usd_total: float | None
    idle_gpu_ns: int
    where: dict[str, CostAmount]
    accounts: list[CostAccount]
    periods: list[CostPeriod]
    replicas: list[CostReplica]


def step_of(since_utc_s: int, until_utc_s: int) -> Period:
    """What the time is shown by."""
    return "hour" if until_utc_s - since_utc_s <= _HOURS_MAX * HOUR_S else "day"


def make_cost_view(
    usage: Iterable[UsageRow],
    capacity: Iterable[CapacityRow],
    names: AccountNames,
    *,
    book: PriceBook,
    since_utc_s: int,
    until_utc_s: int,
    settled_utc_s: float | None = None,
    zone: dt.tzinfo = dt.UTC,
    spread: IdleSpread = "none",
    reservations: Sequence[ReservationConfig] = (),
    accounts_max: int = 20,
) -> CostView:
    """The view of the rows, which are those of the time from `since_utc_s` to `until_utc_s`.

    Accounts beyond the `accounts_max` dearest are one. A period's accounts have what they used,
    not their share of idle time: by use that is found for the whole time only.
    """
    step = step_of(since_utc_s, until_utc_s)
    used, there = list(usage), list(capacity)
    bill = make_bill(
        used,
        there,
        names,
        book=book,
        spread=spread,
        reservations=reservations,
        zone=zone,
        until_utc_s=until_utc_s,
    ).top(accounts_max)
    return CostView(
        by=bill.by,
        since_utc_s=since_utc_s,
        until_utc_s=until_utc_s,
        settled_utc_s=settled_utc_s,
        step=step,
        gpu_ns_total=bill.total.gpu_ns,
        usd_total=_amount(bill.total).usd,
        idle_gpu_ns=bill.idle.gpu_ns,
        where=_where(bill),
        accounts=[_account(account) for account in bill.accounts],
        periods=_periods(used, there, names, book, bill, step, (since_utc_s, until_utc_s), zone),
        replicas=[
            CostReplica(
                name=each.replica,
                gpu=each.gpu or None,
                gpus=each.gpus,
                total=_amount(each.total),
                idle=_amount(each.idle),
                warmup=_amount(each.warmup),
                price=None if each.price is None else each.price.source,
            )
            for each in bill.replicas
        ],
    )


def _periods(
    usage: list[UsageRow],
    capacity: list[CapacityRow],
    names: AccountNames,
    book: PriceBook,
    bill: Bill,
    step: Period,
    window: tuple[int, int],
    zone: dt.tzinfo,
) -> list[CostPeriod]:
    """Every period of the time, also those in which nothing happened."""
    starts: dict[int, int] = {}  # of hours -> of their periods
    rows: dict[int, tuple[list[UsageRow], list[CapacityRow]]] = {}
    at_s, until_s = period_bounds(window[0], step, zone)[0], window[1]
    while at_s < until_s:
        rows[at_s] = ([], [])
        at_s = period_bounds(at_s, step, zone)[1]

    def of(hour_at_utc_s: int) -> tuple[list[UsageRow], list[CapacityRow]]:
        start = starts.get(hour_at_utc_s)
        if start is None:
            start = starts[hour_at_utc_s] = period_bounds(hour_at_utc_s, step, zone)[0]
        return rows.setdefault(start, ([], []))

    for row in usage:
        of(row.hour_at_utc_s)[0].append(row)
    for there in capacity:
        of(there.hour_at_utc_s)[1].append(there)
    shown = {account.name for account in bill.accounts}
    return [
        _period(start, make_bill(*rows[start], names, book=book), shown) for start in sorted(rows)
    ]


def _period(since_utc_s: int, bill: Bill, shown: set[str]) -> CostPeriod:
    sums: dict[str, Amount] = {}
    for account in bill.accounts:
        if account.own:
            name = account.name if account.name in shown else OTHERS
            sums.setdefault(name, Amount()).take(account.use)
    return CostPeriod(
        since_utc_s=since_utc_s,
        where=_where(bill),
        accounts={name: _amount(amount) for name, amount in sums.items()},
    )


def _account(account: Account) -> CostAccount:
    use, total = account.use, _amount(account.total)
    return CostAccount(
        name=account.name,
        gpu_ns=total.gpu_ns,
        usd=total.usd,
        requests=use.requests,
        requests_failed=use.requests_failed,
        prompt_tokens=use.prompt_tokens,
        cached_tokens=use.cached_tokens,
        output_tokens=use.output_tokens,
        interval=(use.low_ns, use.high_ns),
        idle=_amount(account.spread),
    )


def _where(bill: Bill) -> dict[str, CostAmount]:
    return {kind: _amount(amount) for kind, amount in bill.where.items()}


def _amount(amount: Amount) -> CostAmount:
    nano_usd = amount.whole_nano_usd
    return CostAmount(amount.gpu_ns, None if nano_usd is None else nano_usd / _NANO)
