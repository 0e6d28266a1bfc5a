"""Hours that stand out: found where they are, and not where nothing happened."""

from __future__ import annotations

import datetime as dt
from random import Random

import pytest

from mileage.ledger.anomaly import Anomalies, find_anomalies
from mileage.ledger.billing_config import AnomalyConfig
from mileage.ledger.hour_series import HourSeries
from tests.support.usage_rows import HOUR_NS, START_S

WEEK_S = 7 * 86_400


def series(weeks: int, *, seed: int = 1, noise: float = 0.15, **changed: float) -> HourSeries:
    """Hours of weeks and one of November; `h30=3.0`: its hour 30 thrice; `h_8`: 8 before."""
    random = Random(seed)
    hours = range(START_S - weeks * WEEK_S, START_S + WEEK_S, 3600)
    values = []
    for at in hours:
        busy = 0.1 + 0.9 * (8 <= at // 3600 % 24 < 18)
        hour = (at - START_S) // 3600
        factor = changed.get(f"h{hour}" if hour >= 0 else f"h_{-hour}", 1.0)
        values.append(int(HOUR_NS * busy * random.lognormvariate(0.0, noise) * factor))
    return HourSeries(
        name="a",
        hours_at_utc_s=tuple(hours),
        gpu_ns=tuple(values),
        nano_usd=tuple(value // 1000 for value in values),
    )


def found_in(of: HourSeries) -> Anomalies:
    return find_anomalies(of, AnomalyConfig(), dt.UTC, since_utc_s=START_S)


def test_an_hour_that_used_thrice_as_much_is_named_with_what_was_expected() -> None:
    found = found_in(series(5, h34=3.0)).found
    assert [each.hour_at_utc_s for each in found] == [START_S + 34 * 3600]
    (anomaly,) = found
    assert anomaly.account == "a"
    assert anomaly.expected_ns == pytest.approx(HOUR_NS, rel=0.25)
    assert anomaly.actual_ns > 2 * HOUR_NS
    assert anomaly.against == "hour of the week"
    assert anomaly.extra_nano_usd == pytest.approx(
        (anomaly.actual_ns - anomaly.expected_ns) / 1000, rel=1e-3
    )


def test_an_hour_in_which_nothing_came_is_named_too() -> None:
    (anomaly,) = found_in(series(5, noise=0.1, h34=0.0)).found
    assert anomaly.actual_ns == 0
    assert anomaly.deviations < 0
    assert anomaly.extra_nano_usd is None


def test_an_anomaly_of_last_week_hides_none_of_this_week() -> None:
    found = found_in(series(5, h34=3.0, h_134=5.0)).found
    assert START_S + 34 * 3600 in [each.hour_at_utc_s for each in found]


def test_noise_alone_is_hardly_ever_an_anomaly() -> None:
    found = [found_in(series(5, seed=seed)) for seed in range(30)]
    assert sum(len(each.found) for each in found) <= sum(each.hours for each in found) / 1000


def test_with_ten_days_hours_are_compared_by_the_day() -> None:
    of = series(2, h34=4.0)
    (anomaly,) = found_in(of).found
    assert anomaly.against == "hour of the day"


def test_where_there_is_no_history_nothing_is_said_and_that_is_counted() -> None:
    found = found_in(series(0, h34=9.0))
    assert found.found == ()
    assert found.unknown == found.hours == WEEK_S // 3600


def test_a_small_account_makes_no_alarm() -> None:
    of = series(5, h34=3.0)
    small = HourSeries(
        name="a",
        hours_at_utc_s=of.hours_at_utc_s,
        gpu_ns=tuple(value // 1000 for value in of.gpu_ns),
        nano_usd=None,
    )
    assert found_in(small).found == ()
