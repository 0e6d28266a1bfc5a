"""What a finding costs: prices, GPUs and hours by closed forms; none where one is not known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.costmodel.catalogue import gpu
from mileage.costmodel.price import gpu_prices
from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.money import (
    HOURS_PER_MONTH,
    Bill,
    GpuBill,
    GpuPriceStated,
    NoBill,
    loss_of,
    month_of,
    no_loss_because,
)
from mileage.doctor.opinion import Opinion


def evidence(**facts: Any) -> Evidence:
    return Evidence(decode_facts(facts))


def finding(
    waste_ratio: Interval | None = None, loss_usd_per_month: Interval | None = None
) -> Opinion:
    return Opinion(
        "finding", 1.0, (), (), waste_ratio=waste_ratio, loss_usd_per_month=loss_usd_per_month
    )


def month(price: Interval | None = None, **facts: Any) -> Interval | None:
    stated = None if price is None else GpuPriceStated(price, "ours")
    bill = month_of(evidence(**facts), stated)
    return bill.usd_per_month if isinstance(bill, GpuBill) else None


PRICED: dict[str, Any] = {"signals": {"gpu_price_usd_per_h": 2}}


@pytest.mark.parametrize(
    ("facts", "gpus"),
    [
        pytest.param({"hardware": {"count": 4}}, 4, id="cards of the deployment"),
        pytest.param(
            {"hardware": {"count": 4}, "topology": {"replicas": 3}},
            4,
            id="cards of the deployment are those of all replicas",
        ),
        pytest.param({"settings": {"tensor_parallel_size": 2}}, 2, id="one replica's width"),
        pytest.param(
            {
                "settings": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2},
                "topology": {"replicas": 3},
            },
            12,
            id="replicas times width times stages",
        ),
    ],
)
def test_a_month_is_price_times_gpus_times_hours(facts: dict[str, Any], gpus: int) -> None:
    assert month(**facts, **PRICED) == exactly(2.0 * gpus * HOURS_PER_MONTH)


def test_the_price_book_comes_before_the_stated_price() -> None:
    assert month(exactly(3.0), hardware={"count": 1}, **PRICED) == exactly(3 * HOURS_PER_MONTH)


def test_without_a_price_public_offers_bound_it() -> None:
    offers = gpu_prices(gpu("H100"))
    bill = month_of(evidence(hardware={"gpu": "H100", "count": 2}))
    assert isinstance(bill, GpuBill)
    assert bill.usd_per_month == Interval(
        offers[0].usd_per_gpu_hour * 2 * HOURS_PER_MONTH,
        offers[-1].usd_per_gpu_hour * 2 * HOURS_PER_MONTH,
    )
    assert f"{len(offers)} public offers" in bill.basis


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        pytest.param({"hardware": {"count": 2}}, "GPU is not known", id="neither price nor card"),
        pytest.param(
            {"hardware": {"gpu": "H20", "count": 2}}, "nobody offers", id="a card nobody offers"
        ),
        pytest.param(
            {"hardware": {"gpu": "?", "count": 2}}, "GPU is not known", id="a card of no name"
        ),
        pytest.param({"hardware": {"gpu": "H100"}}, "number of GPUs", id="the number of cards"),
        pytest.param(
            {"hardware": {"count": {"min": 2}}, **PRICED}, "number of", id="a bound without an end"
        ),
        pytest.param(
            {"hardware": {"count": 2}, "signals": {"gpu_price_usd_per_h": {"min": 1}}},
            "one side",
            id="a price without an end",
        ),
    ],
)
def test_what_is_not_known_has_no_bill_and_says_why(facts: dict[str, Any], why: str) -> None:
    bill = month_of(evidence(**facts))
    assert isinstance(bill, NoBill)
    assert why in bill.why
    assert no_loss_because(finding(Interval(0.1, 0.2)), bill) == bill.why


def test_a_share_that_is_not_known_is_named_first() -> None:
    assert "share" in no_loss_because(finding(), NoBill("no price"))


BILL = GpuBill(Interval(1000.0, 2000.0), "2 GPUs")
NO_BILL = NoBill("no price")


def test_a_loss_is_the_wasted_share_of_the_bill() -> None:
    loss = loss_of(finding(Interval(0.25, 0.5)), BILL)
    assert loss is not None
    assert (loss.low, loss.high) == (250.0, 1000.0)
    assert loss.basis == "0.25 to 0.5 of 2 GPUs"


def test_a_share_beyond_the_whole_is_the_whole() -> None:
    loss = loss_of(finding(Interval(-1.0, 3.0)), BILL)
    assert loss is not None
    assert (loss.low, loss.high) == (0.0, 2000.0)


def test_a_loss_that_facts_state_needs_no_bill() -> None:
    loss = loss_of(finding(loss_usd_per_month=Interval(10.0, 20.0)), NO_BILL)
    assert loss is not None
    assert (loss.low, loss.high) == (10.0, 20.0)


@pytest.mark.parametrize(
    ("opinion", "bill"),
    [
        pytest.param(finding(), BILL, id="the share is not known"),
        pytest.param(finding(Interval(0.1, 0.2)), NO_BILL, id="the bill is not known"),
        pytest.param(
            finding(loss_usd_per_month=Interval(low=10.0)), NO_BILL, id="a loss without an end"
        ),
    ],
)
def test_no_loss_is_guessed(opinion: Opinion, bill: Bill) -> None:
    assert loss_of(opinion, bill) is None


@given(
    st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
    st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)).map(sorted),
    st.floats(0, 1),
)
def test_a_loss_never_exceeds_the_bill_and_grows_with_the_share(
    share: list[float], month: list[float], more: float
) -> None:
    bill = GpuBill(Interval(*month), "")
    loss = loss_of(finding(Interval(*share)), bill)
    larger = loss_of(finding(Interval(share[0], max(share[1], more))), bill)
    assert loss is not None
    assert larger is not None
    assert 0 <= loss.low <= loss.high <= bill.usd_per_month.high + 0.01
    assert larger.high >= loss.high
