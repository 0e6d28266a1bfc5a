"""Properties: whatever the rows, accounts and idle time are the whole, in GPU time and in money."""

from __future__ import annotations

import datetime as dt
from fractions import Fraction
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from mileage.ledger.account_name import AccountNames
from mileage.ledger.bill import Bill, kinds_of_use, make_bill
from mileage.ledger.billing_config import (
    BillingConfig,
    IdleSpread,
    PriceConfig,
    ReservationConfig,
    TeamConfig,
)
from mileage.ledger.price_book import NS_PER_HOUR, PriceBook
from mileage.ledger.usage_row import CapacityRow, UsageRow
from tests.support.usage_rows import START_S, ledgers

Ledger = tuple[list[UsageRow], list[CapacityRow]]

BYS = ("tenant", "team", "model", "adapter", "key", "replica", "label:app", "hour", "day", "month")
ZONES = st.sampled_from(
    [dt.UTC, *map(ZoneInfo, ("Asia/Kathmandu", "America/New_York", "Pacific/Apia"))]
)
CONFIG = BillingConfig(
    prices=(
        PriceConfig(replica="r0", until=dt.date(2026, 11, 2), usd_per_replica_hour=10.0),
        PriceConfig(replica="r0", purchase_usd=9_999.0, years=3.0, residual_ratio=0.1),
        PriceConfig(gpu="l40s", usd_per_gpu_hour=0.7),
    ),
    teams={"one": TeamConfig(tenants=("a", "b"))},
)
RESERVATIONS = (
    ReservationConfig(tenant="a", gpus=0.25),
    ReservationConfig(tenant="nobody", gpus=1.5, since=dt.date(2026, 11, 2)),
)


def bill_of(ledger: Ledger, by: str, zone: dt.tzinfo, spread: IdleSpread = "none") -> Bill:
    names = AccountNames(by, zone, CONFIG.team_of)
    book = PriceBook(CONFIG, zone)
    reservations = RESERVATIONS if spread == "reservation" else ()
    return make_bill(*ledger, names, book=book, spread=spread, reservations=reservations, zone=zone)


@given(
    ledger=ledgers(),
    by=st.sampled_from(BYS),
    zone=ZONES,
    spread=st.sampled_from(("none", "use", "reservation")),
)
def test_accounts_and_idle_are_the_whole(
    ledger: Ledger, by: str, zone: dt.tzinfo, spread: IdleSpread
) -> None:
    bill = bill_of(ledger, by, zone, spread)

    assert bill.total.gpu_ns == sum(row.capacity_ns for row in ledger[1])
    for field in ("gpu_ns", "nano_usd", "unpriced_ns"):
        whole = getattr(bill.total, field)
        parts = [getattr(account.total, field) for account in bill.accounts]
        assert sum(parts) + getattr(bill.idle, field) == whole
        assert sum(getattr(amount, field) for amount in bill.where.values()) == whole
        assert sum(getattr(replica.total, field) for replica in bill.replicas) == whole
        assert min((*parts, getattr(bill.idle, field))) >= 0
    assert sum(a.use.requests for a in bill.accounts) == sum(row.requests for row in ledger[0])
    for account in bill.accounts:
        kinds = kinds_of_use(account.use).values()
        assert sum(kind.gpu_ns for kind in kinds) == account.use.gpu_ns
        assert sum(kind.nano_usd for kind in kinds) == account.use.nano_usd


@given(ledger=ledgers(), zone=ZONES)
def test_money_is_gpu_time_times_price_to_half_a_nano_dollar_per_hour(
    ledger: Ledger, zone: dt.tzinfo
) -> None:
    book = PriceBook(CONFIG, zone)
    exact, unpriced_ns = Fraction(0), 0
    for row in ledger[1]:
        price = book.price(row.hour_at_utc_s, replica=row.replica, gpu=row.gpu, gpus=row.gpus)
        if price is None:
            unpriced_ns += row.capacity_ns
        else:
            exact += price.nano_usd_per_gpu_hour * row.capacity_ns / NS_PER_HOUR
    total = bill_of(ledger, "tenant", zone).total
    assert abs(total.nano_usd - exact) <= Fraction(len(ledger[1]), 2)
    assert total.unpriced_ns == unpriced_ns


@given(ledger=ledgers(), zone=ZONES, by=st.sampled_from(BYS[:-3]), cut=st.integers(0, 61))
def test_bills_of_parts_of_a_time_sum_to_the_bill_of_the_whole(
    ledger: Ledger, zone: dt.tzinfo, by: str, cut: int
) -> None:
    at_utc_s = START_S + 3600 * cut
    early = tuple([row for row in rows if row.hour_at_utc_s < at_utc_s] for rows in ledger)
    late = tuple([row for row in rows if row.hour_at_utc_s >= at_utc_s] for rows in ledger)
    whole = bill_of(ledger, by, zone, "reservation")
    parts = [bill_of(part, by, zone, "reservation") for part in (early, late)]  # type: ignore[arg-type]

    for account in whole.accounts:
        found = [a for part in parts for a in part.accounts if a.name == account.name]
        assert sum(a.total.gpu_ns for a in found) == account.total.gpu_ns
        assert sum(a.total.nano_usd for a in found) == account.total.nano_usd
    assert sum(part.idle.nano_usd for part in parts) == whole.idle.nano_usd


@given(ledger=ledgers(), zone=ZONES)
def test_a_tenant_pays_at_most_for_what_it_reserved_and_did_not_use(
    ledger: Ledger, zone: dt.tzinfo
) -> None:
    bill = bill_of(ledger, "tenant", zone, "reservation")
    hours = {row.hour_at_utc_s for row in ledger[1]}
    spread = {account.name: account.spread.gpu_ns for account in bill.accounts}
    assert spread.get("a", 0) <= len(hours) * NS_PER_HOUR // 4
    assert spread.get("b", 0) == 0


@given(ledger=ledgers(), by=st.sampled_from(BYS[:-3]), zone=ZONES, count=st.integers(1, 3))
def test_the_accounts_that_are_not_shown_are_one(
    ledger: Ledger, by: str, zone: dt.tzinfo, count: int
) -> None:
    bill = bill_of(ledger, by, zone)
    short = bill.top(count)
    assert sum(a.total.nano_usd for a in short.accounts) + short.idle.nano_usd == (
        bill.total.nano_usd
    )
    assert sum(account.own for account in short.accounts) <= count
    names = [account.name for account in bill.accounts]
    assert len(set(names)) == len(names)
