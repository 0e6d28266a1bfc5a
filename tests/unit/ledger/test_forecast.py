"""What a month will come to: right on what repeats, as wide as it must be, none where unknown."""

from __future__ import annotations

import datetime as dt
import math
from random import Random

import pytest

from mileage.ledger.billing_config import ForecastConfig
from mileage.ledger.forecast import Forecast, forecast
from tests.support.usage_rows import START_S

HOUR, DAY = 3600, 86_400
END_S = START_S + 30 * DAY


def forecast_of(values: dict[int, float], now_utc_s: int) -> Forecast | None:
    known = {at: value for at, value in values.items() if at < now_utc_s}
    return forecast(
        list(known),
        list(known.values()),
        dt.UTC,
        ForecastConfig(),
        start_utc_s=START_S,
        now_utc_s=now_utc_s,
        end_utc_s=END_S,
    )


def shape(at_utc_s: int) -> float:
    hour, weekday = at_utc_s // HOUR % 24, (at_utc_s // DAY + 3) % 7
    return (2.0 + 8.0 * (8 <= hour < 18)) * (0.3 if weekday >= 5 else 1.0)


def series(days: int, random: Random | None = None, noise: float = 0.0) -> dict[int, float]:
    """Hours of so many days up to the end of November; each day is off by a part of its own."""
    values, level = {}, 0.0
    for at in range(END_S - days * DAY, END_S, HOUR):
        if random is not None and at % DAY == 0:
            level = 0.4 * level + noise * random.gauss(0.0, 1.0)
        hourly = 1.0 if random is None else random.uniform(0.9, 1.1)
        values[at] = max(0.0, shape(at) * (1.0 + level) * hourly)
    return values


def test_what_repeats_every_week_is_told_exactly() -> None:
    values = series(60)
    now_utc_s = START_S + 10 * DAY + 1800
    values[now_utc_s - 1800] /= 2  # half of the hour of now is over
    found = forecast_of(values, now_utc_s)
    assert found is not None
    assert found.by == "hour of the week"
    whole = sum(shape(at) for at in range(START_S, END_S, HOUR))
    assert found.expected == pytest.approx(whole)
    assert found.low == pytest.approx(found.high)
    assert found.actual < whole


def test_a_week_is_told_by_the_hour_of_the_day_and_is_unsure() -> None:
    found = forecast_of(series(25), START_S + 10 * DAY)
    assert found is not None
    assert found.by == "hour of the day"
    assert found.low < found.expected < found.high


def test_too_few_days_have_no_forecast() -> None:
    assert forecast_of(series(22), START_S + 10 * DAY) is None


def test_hours_that_are_not_on_record_are_not_taken_for_idle() -> None:
    values = series(60)
    gone = {at: v for at, v in values.items() if not START_S - 9 * DAY <= at < START_S - 3 * DAY}
    found = forecast_of(gone, START_S + 5 * DAY)
    assert found is not None
    assert found.expected == pytest.approx(sum(shape(at) for at in range(START_S, END_S, HOUR)))


@pytest.mark.parametrize("days", [30, 40, 70])
def test_intervals_hold_about_as_often_as_they_say(days: int) -> None:
    held = 0
    runs = 150
    for seed in range(runs):
        values = series(days, Random(seed), 0.15)
        found = forecast_of(values, START_S + 15 * DAY)
        assert found is not None
        truth = math.fsum(value for at, value in values.items() if at >= START_S)
        held += found.low <= truth <= found.high
    assert 0.83 <= held / runs <= 0.99, held / runs
