"""Figures of mileage bench as people read them."""

from __future__ import annotations

import pytest

from mileage.cli.bench_format import usd


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param(0.0, "$0.00", id="nothing"),
        pytest.param(0.000_123_4, "$0.000123", id="three digits of little"),
        pytest.param(0.6, "$0.600", id="as many of a round amount"),
        pytest.param(0.612_34, "$0.612", id="beside one that is not"),
        pytest.param(1.0, "$1.00", id="cents"),
        pytest.param(12.345, "$12.35", id="cents of more"),
        pytest.param(99.999, "$100.00", id="cents up to a hundred"),
        pytest.param(12_345.6, "$12,346", id="whole dollars"),
    ],
)
def test_amounts_of_money_look_alike(value: float, shown: str) -> None:
    assert usd(value) == shown
