"""Properties: the bill by request is the same whole, and gives each request what is its own."""

from __future__ import annotations

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from mileage.ledger.bill import make_bill
from mileage.ledger.bill_requests import NOT_ON_RECORD, BookNames, RequestUse, by_request
from mileage.ledger.billing_config import BillingConfig, IdleSpread, PriceConfig
from mileage.ledger.price_book import PriceBook
from mileage.ledger.usage_row import CapacityRow, UsageRow
from tests.support.usage_rows import HOUR_NS, START_S

BOOK = PriceBook(BillingConfig(prices=(PriceConfig(usd_per_gpu_hour=1.7),)), dt.UTC)
START_NS = START_S * 1_000_000_000


@st.composite
def requests(draw: DrawFn) -> RequestUse:
    began = START_NS + draw(st.integers(-HOUR_NS // 2, HOUR_NS * 3 // 2))
    gpu_ns = draw(st.integers(0, HOUR_NS))
    return RequestUse(
        id=draw(st.integers(1, 10**9)),
        replica="r",
        tenant=draw(st.sampled_from("ab")),
        model="m",
        arrived_at_utc_ns=began,
        began_at_utc_ns=began,
        ended_at_utc_ns=began + draw(st.integers(0, HOUR_NS)),
        ok=draw(st.booleans()),
        prompt_tokens=5,
        gpu_ns=gpu_ns,
        prefill_ns=gpu_ns // 3,
    )


def rows_of(found: list[RequestUse], deleted_ns: int) -> list[UsageRow]:
    """What an hour's books have of the requests, and of another that is deleted."""
    rows = []
    for tenant in "ab":
        own = [r for r in found if r.tenant == tenant]
        parts = [int(r.gpu_ns * r.inside(START_NS, START_NS + HOUR_NS)) for r in own]
        arrived = sum(START_NS <= r.arrived_at_utc_ns < START_NS + HOUR_NS for r in own)
        row = UsageRow(
            hour_at_utc_s=START_S,
            replica="r",
            tenant=tenant,
            model="m",
            requests=arrived + bool(deleted_ns),
            prompt_tokens=5 * arrived,
            gpu_ns=sum(parts) + deleted_ns,
            prefill_ns=sum(part // 3 for part in parts),
        )
        rows.append(row)
    return rows


@given(
    found=st.lists(requests(), max_size=8, unique_by=lambda r: r.id),
    deleted_ns=st.integers(0, HOUR_NS),
    idle_ns=st.integers(0, HOUR_NS),
    spread=st.sampled_from(("none", "use")),
)
def test_requests_and_idle_time_are_the_whole(
    found: list[RequestUse], deleted_ns: int, idle_ns: int, spread: IdleSpread
) -> None:
    rows = rows_of(found, deleted_ns)
    total_ns = sum(row.gpu_ns for row in rows) + idle_ns
    there = CapacityRow(hour_at_utc_s=START_S, replica="r", capacity_ns=total_ns, idle_ns=idle_ns)
    books = make_bill(rows, [there], BookNames(), book=BOOK, spread=spread)
    bill = by_request(books, found, since_utc_s=START_S, until_utc_s=START_S + 3600)

    assert bill.total.gpu_ns == total_ns
    for field in ("gpu_ns", "nano_usd"):
        parts = [getattr(account.total, field) for account in bill.accounts]
        assert sum(parts) + getattr(bill.idle, field) == getattr(bill.total, field)
        assert min([0, *parts]) == 0
    assert sum(a.use.requests for a in bill.accounts) == sum(row.requests for row in rows)
    assert sum(a.use.prompt_tokens for a in bill.accounts) == sum(r.prompt_tokens for r in rows)
    for account in bill.accounts:
        use = account.use
        kinds = use.prefill_ns + use.decode_ns + use.recomputed_ns + use.failed_ns
        assert kinds == use.gpu_ns
    by_name = {account.name: account for account in bill.accounts}
    for request in found:
        if request.inside(START_NS, START_NS + HOUR_NS) == 1.0 and not deleted_ns:
            own = by_name.get(str(request.id))
            assert (own.use.gpu_ns if own else 0) == request.gpu_ns
    if deleted_ns > HOUR_NS // 2 and not found:
        assert by_name[NOT_ON_RECORD].use.gpu_ns == 2 * deleted_ns
