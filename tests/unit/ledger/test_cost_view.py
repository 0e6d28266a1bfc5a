"""CostView: the whole is the sum of its parts, of its accounts and of its periods."""

from __future__ import annotations

import datetime as dt

import pytest

from mileage.ledger.account_name import AccountNames
from mileage.ledger.billing_config import BillingConfig
from mileage.ledger.cost_view import CostView, make_cost_view, step_of
from mileage.ledger.price_book import PriceBook
from mileage.ledger.usage_row import CapacityRow, UsageRow

HOUR_S = 3600
HOUR_NS = 3600 * 10**9
MIDNIGHT_S = 1_800_057_600
"""A midnight of UTC."""


def usage(hour: int, tenant: str, share: float, **fields: object) -> UsageRow:
    gpu_ns = int(share * HOUR_NS)
    values = {
        "requests": 10,
        "gpu_ns": gpu_ns,
        "prefill_ns": gpu_ns // 4,
        "low_ns": gpu_ns // 2,
        "high_ns": 2 * gpu_ns,
        **fields,
    }
    return UsageRow(
        hour_at_utc_s=MIDNIGHT_S + hour * HOUR_S,
        replica="a",
        tenant=tenant,
        model="m",
        **values,  # type: ignore[arg-type]
    )


def capacity(hour: int, idle: float) -> CapacityRow:
    return CapacityRow(
        hour_at_utc_s=MIDNIGHT_S + hour * HOUR_S,
        replica="a",
        gpu="H100-SXM5-80GB",
        capacity_ns=HOUR_NS,
        idle_ns=int(idle * HOUR_NS),
    )


ROWS = [
    usage(0, "x", 0.5),
    usage(0, "y", 0.25),
    usage(1, "x", 0.125, requests_failed=2, failed_ns=HOUR_NS // 16),
    usage(30, "z", 0.5),
]
HOURS = [capacity(0, 0.25), capacity(1, 0.875), capacity(30, 0.5)]


def view(*, until_h: int = 48, price: float | None = 2.0, **options: object) -> CostView:
    book = PriceBook(BillingConfig(public_prices=False), dt.UTC, usd_per_gpu_hour=price)
    return make_cost_view(
        ROWS,
        HOURS,
        AccountNames("tenant", dt.UTC),
        book=book,
        since_utc_s=MIDNIGHT_S,
        until_utc_s=MIDNIGHT_S + until_h * HOUR_S,
        **options,  # type: ignore[arg-type]
    )


def test_parts_accounts_and_periods_sum_to_the_whole() -> None:
    found = view()
    assert found.gpu_ns_total == 3 * HOUR_NS
    assert found.usd_total == 6.0
    assert sum(part.gpu_ns for part in found.where.values()) == found.gpu_ns_total
    assert sum(a.gpu_ns for a in found.accounts) + found.idle_gpu_ns == found.gpu_ns_total
    for kind, part in found.where.items():
        assert sum(period.where[kind].gpu_ns for period in found.periods) == part.gpu_ns
    for account in found.accounts:
        periods = [p.accounts[account.name] for p in found.periods if account.name in p.accounts]
        assert sum(part.gpu_ns for part in periods) == account.gpu_ns
        assert sum(part.usd or 0 for part in periods) == pytest.approx(account.usd)


def test_accounts_have_what_they_used() -> None:
    x, z, y = view().accounts
    assert (x.name, x.usd, x.requests, x.requests_failed) == ("x", 1.25, 20, 2)
    assert x.interval == (x.gpu_ns // 2, 2 * x.gpu_ns)
    assert (z.name, y.name) == ("z", "y")
    (replica,) = view().replicas
    assert (replica.gpu, replica.idle.gpu_ns) == ("H100-SXM5-80GB", 13 * HOUR_NS // 8)


def test_accounts_beyond_those_shown_are_one_everywhere() -> None:
    found = view(accounts_max=1)
    assert [account.name for account in found.accounts] == ["x", "(others)"]
    assert set(found.periods[0].accounts) == {"x", "(others)"}
    others = sum(p.accounts["(others)"].gpu_ns for p in found.periods if "(others)" in p.accounts)
    assert others == found.accounts[1].gpu_ns


def test_every_hour_has_a_place_and_so_has_every_day_of_a_longer_time() -> None:
    assert step_of(0, 72 * HOUR_S) == "hour"
    assert [p.since_utc_s for p in view(until_h=3).periods[:3]] == [
        MIDNIGHT_S + n * HOUR_S for n in range(3)
    ]
    days = view(until_h=96).periods
    assert [(day.since_utc_s - MIDNIGHT_S) // HOUR_S for day in days] == [0, 24, 48, 72]
    assert days[1].accounts.keys() == {"z"}
    assert all(part.gpu_ns == 0 for part in days[3].where.values())


def test_without_a_price_there_is_time_and_no_money() -> None:
    found = view(price=None)
    assert found.usd_total is None
    assert found.gpu_ns_total == 3 * HOUR_NS
    assert all(account.usd is None for account in found.accounts)
    assert found.replicas[0].price is None


def test_idle_time_that_users_pay_for_is_told_apart() -> None:
    found = view(spread="use")
    assert found.idle_gpu_ns == 0
    assert sum(account.gpu_ns for account in found.accounts) == found.gpu_ns_total
    assert sum(account.idle.gpu_ns for account in found.accounts) == found.where["idle"].gpu_ns


def test_an_empty_ledger_has_an_empty_view() -> None:
    book = PriceBook(BillingConfig(), dt.UTC)
    found = make_cost_view(
        [],
        [],
        AccountNames("model", dt.UTC),
        book=book,
        since_utc_s=MIDNIGHT_S,
        until_utc_s=MIDNIGHT_S + HOUR_S,
    )
    assert (found.gpu_ns_total, found.accounts, found.replicas) == (0, [], [])
    assert len(found.periods) == 1
