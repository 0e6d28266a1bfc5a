"""What an hour of a GPU costs: which word holds, and what it comes to."""

from __future__ import annotations

import datetime as dt
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from mileage.core.errors import ConfigError
from mileage.ledger.billing_config import BillingConfig, EnergyConfig, PriceConfig
from mileage.ledger.price_book import NS_PER_HOUR, PriceBook
from tests.support.usage_rows import START_S

CONTRACT = PriceConfig(name="three years", gpu="h100", usd_per_gpu_hour=2.0)
OWN = PriceConfig(purchase_usd=26_298.0, years=3.0, residual_ratio=0.5)


def usd(config: BillingConfig, *, costs: float | None = None, **of: Any) -> float | None:
    book = PriceBook(config, dt.UTC, usd_per_gpu_hour=costs)
    price = book.price(START_S, **{"replica": "r", "gpu": "L40S", "gpus": 1.0, **of})
    return None if price is None else price.usd_per_gpu_hour


@pytest.mark.parametrize(
    ("prices", "costs", "gpu", "expected"),
    [
        pytest.param((CONTRACT,), 9.0, "H100-SXM5-80GB", 2.0, id="a contract comes first"),
        pytest.param((CONTRACT,), 9.0, "L40S", 9.0, id="of another GPU: the price of costs"),
        pytest.param((CONTRACT,), None, "L40S", 1.7047, id="else the median of public prices"),
        pytest.param((), None, "H20-96GB", None, id="no public price: none, and never 0"),
        pytest.param((), None, "", None, id="a GPU that is not known has none"),
        pytest.param((), None, "cpu", None, id="nor has a processor"),
        pytest.param((OWN,), None, "", 0.5, id="hardware: what it loses, by the hour"),
    ],
)
def test_who_says_the_price(
    prices: tuple[PriceConfig, ...], costs: float | None, gpu: str, expected: float | None
) -> None:
    found = usd(BillingConfig(prices=prices), costs=costs, gpu=gpu)
    assert found == (None if expected is None else pytest.approx(expected))


def test_public_prices_can_be_those_of_one_provider_or_none() -> None:
    assert usd(BillingConfig(price_provider="spheron")) == 0.72
    assert usd(BillingConfig(public_prices=False)) is None
    with pytest.raises(ConfigError, match=r"billing\.price_provider.*Nebius"):
        BillingConfig(price_provider="acme")


def test_a_price_of_a_replica_is_for_all_of_its_gpus() -> None:
    config = BillingConfig(prices=(PriceConfig(replica="big-*", usd_per_replica_hour=10.0),))
    price = PriceBook(config, dt.UTC).price(START_S, replica="big-1", gpus=3.0)
    assert price is not None
    assert price.nano_usd_per_gpu_hour == Fraction(10_000_000_000, 3)
    assert price.nano_usd(3 * NS_PER_HOUR) == 10_000_000_000


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        pytest.param("a", "a", True, id="the very name"),
        pytest.param("a", "ab", False, id="not a part of it"),
        pytest.param("*", "", True, id="a star is any text"),
        pytest.param("ab*ba", "aba", False, id="pieces do not overlap"),
        pytest.param("a*b*c", "a-b-b-c", True, id="several stars"),
        pytest.param("a*x*c", "a-b-c", False, id="a piece that is not there"),
    ],
)
def test_patterns_of_replicas(pattern: str, name: str, fits: bool) -> None:
    config = BillingConfig(prices=(PriceConfig(replica=pattern, usd_per_gpu_hour=1.0),))
    assert (usd(config, replica=name, gpu="") is not None) == fits


def test_a_contract_holds_from_its_first_day_until_the_day_after_its_last_in_the_bills_zone() -> (
    None
):
    zone = ZoneInfo("America/New_York")
    config = BillingConfig(
        prices=(
            PriceConfig(
                since=dt.date(2026, 11, 1), until=dt.date(2026, 11, 2), usd_per_gpu_hour=5.0
            ),
        )
    )
    book = PriceBook(config, zone)
    midnight = START_S + 4 * 3600  # the day on which clocks go back has 25 hours
    found = [
        book.price(midnight + hour * 3600, replica="r") is not None for hour in (-1, 0, 24, 25)
    ]
    assert found == [False, True, True, False]


def test_energy_is_added_to_hardware_and_hardware_is_written_off() -> None:
    entry = PriceConfig(
        gpu="l40s", purchase_usd=8766.0, years=1.0, since=dt.date(2025, 11, 1), watts=500.0
    )
    config = BillingConfig(prices=(entry,), energy=EnergyConfig(usd_per_kwh=0.2, pue=1.5))
    book = PriceBook(config, dt.UTC)
    new = book.price(START_S - 300 * 86_400, replica="r", gpu="L40S")
    old = book.price(START_S + 86_400, replica="r", gpu="L40S")
    assert new is not None
    assert old is not None
    assert (new.usd_per_gpu_hour, old.usd_per_gpu_hour) == (1.15, 0.15)
    assert old.note == "written off after 1 years"


def test_energy_is_by_the_makers_limit_where_nothing_was_measured() -> None:
    config = BillingConfig(prices=(OWN,), energy=EnergyConfig(usd_per_kwh=1.0, pue=1.0))
    assert usd(config, gpu="L40S") == pytest.approx(0.5 + 0.35)
    price = PriceBook(config, dt.UTC).price(START_S, replica="r")
    assert price is not None
    assert price.note == "without energy: the power of the GPU is not known"


@pytest.mark.parametrize(
    ("make", "key"),
    [
        pytest.param(lambda: PriceConfig(), "billing.prices.usd_per_gpu_hour", id="no figure"),
        pytest.param(
            lambda: PriceConfig(usd_per_gpu_hour=1.0, purchase_usd=1.0, years=1.0),
            "billing.prices.purchase_usd",
            id="two figures",
        ),
        pytest.param(
            lambda: PriceConfig(purchase_usd=1.0), "billing.prices.years", id="hardware for ever"
        ),
        pytest.param(
            lambda: PriceConfig(usd_per_gpu_hour=1.0, years=1.0),
            "billing.prices.years",
            id="an hourly price with years",
        ),
        pytest.param(
            lambda: PriceConfig(usd_per_gpu_hour=float("nan")),
            "billing.prices.usd_per_gpu_hour",
            id="no number",
        ),
        pytest.param(
            lambda: PriceConfig(usd_per_gpu_hour=1.0, gpu="h1000"),
            "billing.prices.gpu",
            id="a GPU that is not in the catalogue",
        ),
        pytest.param(
            lambda: PriceConfig(
                usd_per_gpu_hour=1.0, since=dt.date(2026, 1, 1), until=dt.date(2026, 1, 1)
            ),
            "billing.prices.until",
            id="ends before it begins",
        ),
        pytest.param(lambda: BillingConfig(currency="euro"), "billing.currency", id="no currency"),
        pytest.param(
            lambda: BillingConfig(currency="EUR"), "billing.currency_per_usd", id="no rate"
        ),
        pytest.param(
            lambda: BillingConfig(currency="EUR", currency_per_usd=1e300),
            "billing.currency_per_usd",
            id="a rate that no amount can be shown in",
        ),
        pytest.param(
            lambda: PriceConfig(purchase_usd=1e9, years=1e-300),
            "billing.prices.years",
            id="hardware that is used for no time",
        ),
        pytest.param(
            lambda: BillingConfig(idle_spread="reservation"),
            "billing.idle_spread",
            id="by reservations that are not there",
        ),
    ],
)
def test_bad_configuration_names_the_key(make: Any, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.key == key


def test_energy_that_is_asked_for_needs_a_price() -> None:
    config = BillingConfig(prices=(PriceConfig(usd_per_gpu_hour=1.0, energy=True),))
    with pytest.raises(ConfigError, match=r"billing\.energy\.usd_per_kwh"):
        PriceBook(config, dt.UTC)
