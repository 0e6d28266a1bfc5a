"""Prices: of known GPUs, and none where none is known."""

from __future__ import annotations

import pytest

from mileage.costmodel.catalogue import GPUS, gpu
from mileage.costmodel.price import PRICES, gpu_prices, usd_per_gpu_hour


def test_every_price_is_of_a_gpu_in_the_catalogue_and_tells_its_source() -> None:
    names = {each.name for each in GPUS}
    for price in PRICES:
        assert price.gpu in names
        assert 0.1 < price.usd_per_gpu_hour < 25
        assert price.source
        assert price.date


def test_the_price_is_the_median_of_the_offers() -> None:
    offers = [price.usd_per_gpu_hour for price in gpu_prices(gpu("h100"))]
    assert offers == sorted(offers)
    assert usd_per_gpu_hour(gpu("h100")) == pytest.approx(4.915)
    assert usd_per_gpu_hour(gpu("h100"), "nebius") == 2.95


def test_an_unknown_price_is_none() -> None:
    assert usd_per_gpu_hour(gpu("h20")) is None
    assert usd_per_gpu_hour(gpu("h100"), "nobody") is None
    assert gpu_prices(gpu("h20")) == ()
