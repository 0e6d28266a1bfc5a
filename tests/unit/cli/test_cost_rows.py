"""Rows by day are those by hour, summed: no GPU time and no request is lost or moved to a day."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest

from mileage.cli.config import Config
from mileage.cli.cost_rows import read_days, read_rows
from mileage.cli.cost_source import usage_source
from mileage.cli.cost_window import Window
from mileage.ledger.account_name import AccountNames
from mileage.ledger.bill import make_bill
from mileage.ledger.billing_config import BillingConfig, PriceConfig
from mileage.ledger.price_book import PriceBook
from tests.support.billed_ledger import month_of_rows, write_rows
from tests.support.usage_rows import START_S

PRICES = (
    PriceConfig(until=dt.date(2026, 11, 4), usd_per_replica_hour=1.3),
    PriceConfig(gpu="h100", usd_per_gpu_hour=2.1),
    PriceConfig(usd_per_gpu_hour=0.7),
)


@pytest.mark.parametrize(
    ("zone", "by"),
    [
        *itertools.product(("UTC", "America/New_York"), ("tenant", "label:app", "replica", "day")),
        ("Asia/Kathmandu", "tenant"),  # its days begin within an hour
    ],
)
def test_a_bill_by_days_is_the_bill_by_hours(tmp_path: Path, zone: str, by: str) -> None:
    usage, capacity = month_of_rows(START_S, 7 * 24)
    # Within a day a replica gets other GPUs.
    capacity = [
        msgspec.structs.replace(row, gpu="H100-SXM5-80GB", gpus=2.0)
        if row.replica == "chat-2" and row.hour_at_utc_s >= START_S + 76 * 3600
        else row
        for row in capacity
    ]
    write_rows(tmp_path, usage, capacity)
    of = ZoneInfo(zone)
    window = Window(START_S + 5000, START_S + 6 * 86_400 + 100, of, zone)
    names = AccountNames(by, of)
    with usage_source(Config(), tmp_path) as source:
        fine = read_rows(source, window)
        coarse = read_days(source, window, names.texts)
    assert len(coarse.usage) < len(fine.usage) / 4
    bills = [
        make_bill(
            rows.usage, rows.capacity, names, book=PriceBook(BillingConfig(prices=PRICES), of)
        )
        for rows in (fine, coarse)
    ]
    by_hour, by_day = ({a.name: a for a in bill.accounts} for bill in bills)
    assert by_hour.keys() == by_day.keys()
    for name, account in by_hour.items():
        assert by_day[name].total.gpu_ns == account.total.gpu_ns
        assert by_day[name].use.requests == account.use.requests
        off = by_day[name].total.nano_usd - account.total.nano_usd
        assert abs(off) <= len(fine.usage)
    assert bills[0].idle.gpu_ns == bills[1].idle.gpu_ns
