"""Rates out of totals: a total that went back says nothing about how far it got."""

from __future__ import annotations

from mileage.measure.counter_rates import CounterRates


def test_a_rate_needs_two_totals() -> None:
    rates = CounterRates()
    assert rates.rate("a", 100.0, 1.0) is None
    assert rates.rate("a", 150.0, 1.5) == 100.0
    assert rates.rate("b", 150.0, 1.5) is None


def test_a_counter_that_went_back_has_no_rate_once() -> None:
    rates = CounterRates()
    rates.rate("a", 100.0, 1.0)
    assert rates.rate("a", 10.0, 2.0) is None
    assert rates.rate("a", 20.0, 3.0) == 10.0


def test_an_unknown_total_breaks_the_series() -> None:
    rates = CounterRates()
    rates.rate("a", 100.0, 1.0)
    assert rates.rate("a", None, 2.0) is None
    assert rates.rate("a", 300.0, 3.0) is None
    assert rates.rate("a", float("nan"), 4.0) is None


def test_no_time_no_rate() -> None:
    rates = CounterRates()
    rates.rate("a", 100.0, 1.0)
    assert rates.rate("a", 200.0, 1.0) is None
