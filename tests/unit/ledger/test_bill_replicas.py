"""The replicas of a bill are those that had GPUs."""

from __future__ import annotations

import datetime as dt

from mileage.ledger.account_name import AccountNames
from mileage.ledger.bill import make_bill
from mileage.ledger.billing_config import BillingConfig
from mileage.ledger.price_book import PriceBook
from tests.support.usage_rows import capacity_of, usage


def test_requests_that_never_ran_are_counted_and_make_no_replica() -> None:
    ran, refused = usage(gpu_ns=5, requests=1), usage(replica="", requests=2, requests_failed=2)
    bill = make_bill(
        [ran, refused],
        [capacity_of([ran], idle_ns=3)],
        AccountNames("tenant", dt.UTC),
        book=PriceBook(BillingConfig(), dt.UTC, usd_per_gpu_hour=2.0),
    )
    assert [replica.replica for replica in bill.replicas] == ["r0"]
    assert bill.total.gpu_ns == 8
    assert bill.accounts[0].use.requests == 3
