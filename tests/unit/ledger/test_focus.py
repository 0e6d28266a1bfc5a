"""FOCUS rows: the mandatory columns, their forms, and sums that are the bill's."""

from __future__ import annotations

import csv
import datetime as dt
import io
import re
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.cli.focus_files import COLUMNS, write_focus_csv, write_focus_parquet
from mileage.ledger.account_name import AccountNames
from mileage.ledger.bill import make_bill
from mileage.ledger.bill_cells import cells_of
from mileage.ledger.billing_config import BillingConfig
from mileage.ledger.focus import FocusNames, FocusRow, UnpricedTime, focus_rows
from mileage.ledger.price_book import PriceBook
from mileage.ledger.usage_row import CapacityRow, UsageRow
from tests.support.usage_rows import HOUR_NS, START_S, capacity_of, ledgers, usage

MANDATORY = {
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
}
MAY_BE_NULL = {
    "ChargeClass",
    "ConsumedQuantity",
    "ConsumedUnit",
    "SubAccountId",
    "SubAccountName",
    "SubAccountType",
}
UTC_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
BERLIN = ZoneInfo("Europe/Berlin")


def book(usd: float | None = 2.0) -> PriceBook:
    return PriceBook(BillingConfig(public_prices=False), dt.UTC, usd_per_gpu_hour=usd)


def made(
    rows: list[UsageRow],
    capacity: list[CapacityRow],
    *,
    usd: float | None = 2.0,
    unpriced: list[UnpricedTime] | None = None,
    period: Any = "day",
    zone: dt.tzinfo = dt.UTC,
    **options: Any,
) -> list[FocusRow]:
    cells = cells_of(rows, capacity, book(usd))
    found = [] if unpriced is None else unpriced
    return list(
        focus_rows(cells, names=FocusNames(), period=period, zone=zone, unpriced=found, **options)
    )


def test_all_mandatory_columns_are_there_in_the_names_of_the_specification() -> None:
    assert set(COLUMNS) >= MANDATORY
    for name in COLUMNS:
        assert re.fullmatch(r"(x_)?[A-Z][A-Za-z]*", name), name
        assert len(name) <= 50


def test_a_day_of_two_tenants() -> None:
    rows = [
        usage(
            1,
            "a",
            gpu_ns=HOUR_NS // 2,
            prefill_ns=HOUR_NS // 4,
            requests=7,
            prompt_tokens=1000,
            cached_tokens=400,
            output_tokens=50,
            labels="app=web,env=prod",
            key="ci",
        ),
        usage(
            2,
            "a",
            gpu_ns=HOUR_NS // 4,
            prefill_ns=0,
            requests=1,
            labels="app=web,env=prod",
            key="ci",
        ),
        usage(1, "b", gpu_ns=0, requests=1),
    ]
    capacity = [
        capacity_of([rows[0], rows[2]], idle_ns=HOUR_NS // 2, gpu="L40S"),
        capacity_of([rows[1]], idle_ns=HOUR_NS // 2, warmup_ns=HOUR_NS // 4, gpu="L40S"),
    ]
    prefill, decode, b, idle, warmup = made(rows, capacity, team_of={"a": "search"})
    assert (prefill.x_UseKind, prefill.BilledCost) == ("prefill", Decimal("0.5"))
    assert (prefill.ConsumedQuantity, prefill.ConsumedUnit) == (Decimal(600), "Tokens")
    assert (prefill.PricingQuantity, prefill.PricingUnit) == (Decimal(900), "GPU-Seconds")
    assert (prefill.x_CachedTokens, prefill.x_Requests) == (400, 8)
    assert msgspec.json.decode(prefill.Tags) == {"app": "web", "env": "prod", "team": "search"}
    assert (decode.x_UseKind, decode.BilledCost) == ("decode", Decimal("1"))
    assert (decode.ConsumedQuantity, decode.x_Requests) == (Decimal(50), 0)
    assert (b.SubAccountId, b.BilledCost, b.x_Requests) == ("b", Decimal(0), 1)
    assert (idle.x_UseKind, idle.SubAccountId, idle.BilledCost) == ("idle", None, Decimal(2))
    assert (warmup.x_UseKind, warmup.BilledCost) == ("warmup", Decimal("0.5"))
    assert {row.ChargePeriodStart for row in (prefill, idle)} == {"2026-11-01T00:00:00Z"}
    assert {row.ChargePeriodEnd for row in (prefill, idle)} == {"2026-11-02T00:00:00Z"}
    assert (idle.BillingPeriodStart, idle.BillingPeriodEnd) == (
        "2026-11-01T00:00:00Z",
        "2026-12-01T00:00:00Z",
    )


def test_days_and_months_are_those_of_the_zone_told_in_utc() -> None:
    rows = [usage(-2, gpu_ns=HOUR_NS), usage(23, gpu_ns=HOUR_NS)]
    first, second = made(rows, [capacity_of([row]) for row in rows], zone=BERLIN)
    assert first.ChargePeriodStart == "2026-10-30T23:00:00Z"
    assert first.BillingPeriodEnd == "2026-10-31T23:00:00Z"
    assert second.ChargePeriodStart == "2026-11-01T23:00:00Z"
    assert second.BillingPeriodStart == "2026-10-31T23:00:00Z"


def test_another_currency_is_the_same_times_its_rate() -> None:
    rows = [usage(gpu_ns=HOUR_NS)]
    (row,) = made(rows, [capacity_of(rows)], currency="EUR", currency_per_usd=0.9)
    assert (row.BilledCost, row.BillingCurrency) == (Decimal("1.8"), "EUR")


def test_time_without_a_price_is_told_and_left_out() -> None:
    unpriced: list[UnpricedTime] = []
    rows = [usage(gpu_ns=1)]
    assert made(rows, [capacity_of(rows)], usd=None, unpriced=unpriced) == []
    assert unpriced == [UnpricedTime("r0", START_S)]


@given(ledgers(), st.sampled_from(["hour", "day"]), st.sampled_from([dt.UTC, BERLIN]))
def test_costs_and_time_sum_to_the_bill(
    ledger: tuple[list[UsageRow], list[CapacityRow]], period: str, zone: dt.tzinfo
) -> None:
    rows, capacity = ledger
    bill = make_bill(rows, capacity, AccountNames("tenant", dt.UTC), book=book())
    found = made(rows, capacity, period=period, zone=zone)
    assert sum(row.BilledCost for row in found) * 10**9 == bill.total.nano_usd
    assert sum(row.x_GpuNanoseconds for row in found) == bill.total.gpu_ns
    assert sum(row.x_Requests or 0 for row in found) == sum(row.requests for row in rows)
    for row in found:
        check(row)


def check(row: FocusRow) -> None:
    """What the specification asks of one row."""
    for name in COLUMNS:
        value = getattr(row, name)
        assert value is not None or name in MAY_BE_NULL or name.startswith("x_"), name
        if name.endswith(("Start", "End")):
            assert UTC_TIME.fullmatch(value)
    assert row.BillingPeriodStart <= row.ChargePeriodStart < row.ChargePeriodEnd
    assert row.ChargePeriodStart < row.BillingPeriodEnd
    assert row.EffectiveCost == row.BilledCost == row.ListCost == row.ContractedCost
    assert row.PricingQuantity * 10**9 == row.x_GpuNanoseconds
    assert (row.ConsumedQuantity is None) == (row.ConsumedUnit is None)
    assert isinstance(msgspec.json.decode(row.Tags), dict)
    assert row.ChargeCategory == "Usage"


ROWS = [usage(1, 'a "b", c', gpu_ns=HOUR_NS // 3, prefill_ns=7, output_tokens=1)]


def test_the_table_can_be_read_again() -> None:
    found = made(ROWS, [capacity_of(ROWS, idle_ns=5)])
    file = io.BytesIO()
    write_focus_csv(file, found)
    read = list(csv.DictReader(io.StringIO(file.getvalue().decode())))
    assert len(read) == len(found)
    assert read[0]["SubAccountName"] == 'a "b", c'
    assert read[-1]["SubAccountName"] == ""
    assert sum(Decimal(row["BilledCost"]) for row in read) == sum(r.BilledCost for r in found)
    assert not any("E" in row["BilledCost"] for row in read)


def test_no_text_of_a_client_is_a_formula_in_the_table() -> None:
    rows = [usage(gpu_ns=1, model="=1+1", key="a\u202eb")]
    file = io.BytesIO()
    write_focus_csv(file, made(rows, [capacity_of(rows)]))
    (read,) = csv.DictReader(io.StringIO(file.getvalue().decode()))
    assert read["x_Model"] == "'=1+1"
    assert read["x_ApiKeyName"] == "a\\u202eb"


def test_parquet_has_exact_decimals_and_times() -> None:
    found = made(ROWS, [capacity_of(ROWS, idle_ns=5)])
    file = io.BytesIO()
    write_focus_parquet(file, found, key="--out")
    table = pyarrow.parquet.read_table(io.BytesIO(file.getvalue()))
    assert tuple(table.column_names) == COLUMNS
    read = table.to_pylist()
    assert sum(row["BilledCost"] for row in read) == sum(row.BilledCost for row in found)
    assert read[0]["ChargePeriodStart"] == dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
    assert read[-1]["SubAccountId"] is None


def test_an_empty_bill_has_no_rows() -> None:
    assert made([], []) == []


@pytest.mark.parametrize("labels", ["(more)", ""])
def test_without_labels_there_are_no_tags(labels: str) -> None:
    rows = [usage(gpu_ns=1, labels=labels)]
    assert made(rows, [capacity_of(rows)])[0].Tags == "{}"
