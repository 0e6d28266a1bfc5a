"""HourlyCost: models sum to what the replicas cost."""

from __future__ import annotations

import datetime as dt

import pytest

from mileage.ledger.account_name import AccountNames
from mileage.ledger.billing_config import BillingConfig
from mileage.ledger.hourly_cost import hourly_costs
from mileage.ledger.price_book import PriceBook
from mileage.ledger.usage_row import CapacityRow, UsageRow

HOUR_NS = 3600 * 10**9
NAMES = AccountNames("model", dt.UTC)
ROWS = [
    UsageRow(
        hour_at_utc_s=0,
        replica="a",
        tenant="t",
        model=model,
        gpu_ns=HOUR_NS // parts,
        prompt_tokens=3_000_000,
        output_tokens=1_000_000,
    )
    for model, parts in (("big", 4), ("small", 8))
]
HOURS = [
    CapacityRow(hour_at_utc_s=0, replica="a", capacity_ns=HOUR_NS, idle_ns=HOUR_NS * 5 // 8),
    CapacityRow(hour_at_utc_s=0, replica="b", capacity_ns=HOUR_NS, idle_ns=HOUR_NS),
]


def book(price: float | None) -> PriceBook:
    return PriceBook(BillingConfig(public_prices=False), dt.UTC, usd_per_gpu_hour=price)


def test_models_pay_for_the_idle_time_of_their_replicas() -> None:
    big, small = hourly_costs(ROWS, HOURS[:1], NAMES, book=book(3.0))
    assert (big.model, small.model) == ("big", "small")
    assert (big.usd, small.usd) == (2.0, 1.0)
    assert big.usd_per_million_tokens == pytest.approx(0.5)
    everything = hourly_costs(ROWS, HOURS, NAMES, book=book(3.0))
    assert sum(each.usd for each in everything) == pytest.approx(6.0)


def test_an_hour_without_requests_is_idle() -> None:
    (idle,) = hourly_costs([], HOURS[1:], NAMES, book=book(3.0))
    assert (idle.model, idle.usd, idle.usd_per_million_tokens) == ("(idle)", 3.0, None)


def test_what_has_no_price_is_left_out() -> None:
    assert hourly_costs(ROWS, HOURS, NAMES, book=book(None)) == []
