"""Properties: days and months of any zone divide time without a gap, as its clocks say."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.ledger.calendar import (
    HOUR_S,
    first_hour,
    hour_of_week,
    local_time,
    period_bounds,
    period_name,
    start_of_day,
    utc_s,
)

ZONES = st.sampled_from(sorted(available_timezones())).map(ZoneInfo)
MOMENTS = st.integers(0, 2_145_916_800)  # to 2038


@given(zone=ZONES, at_utc_s=MOMENTS, period=st.sampled_from(("hour", "day", "month")))
def test_each_moment_is_in_one_period_that_ends_where_the_next_begins(
    zone: dt.tzinfo, at_utc_s: int, period: str
) -> None:
    start, end = period_bounds(at_utc_s, period, zone)  # type: ignore[arg-type]
    assert end > start
    assert period_bounds(start, period, zone)[0] == start  # type: ignore[arg-type]
    # Clocks that are set back over midnight show the old day again for a moment.
    assert start - HOUR_S <= at_utc_s < end + HOUR_S
    assert first_hour(start) - start in range(HOUR_S)


@given(zone=ZONES, at_utc_s=MOMENTS)
def test_a_day_begins_at_the_first_moment_of_which_the_clock_shows_it(
    zone: dt.tzinfo, at_utc_s: int
) -> None:
    day = dt.datetime.fromtimestamp(at_utc_s, zone).date()
    start = start_of_day(day, zone)
    assert dt.datetime.fromtimestamp(start, zone).date() >= day
    assert dt.datetime.fromtimestamp(start - 1, zone).date() < day


@given(zone=ZONES, at_utc_s=MOMENTS)
def test_local_time_is_that_of_zoneinfo(zone: dt.tzinfo, at_utc_s: int) -> None:
    shown = dt.datetime.fromtimestamp(at_utc_s, zone)
    assert local_time(at_utc_s, zone) == shown
    assert utc_s(shown) == at_utc_s
    assert hour_of_week(at_utc_s, zone) == shown.weekday() * 24 + shown.hour
    assert period_name(at_utc_s, "month", zone) == shown.strftime("%Y-%m")


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        pytest.param("Europe/Berlin", "2026-03-29", 23, id="clocks go forward"),
        pytest.param("Europe/Berlin", "2026-10-25", 25, id="clocks go back"),
        pytest.param("Asia/Kolkata", "2026-10-25", 24, id="half an hour off"),
        pytest.param("Australia/Lord_Howe", "2026-10-04", 23.5, id="by half an hour"),
        pytest.param("America/Sao_Paulo", "2018-11-04", 23, id="midnight is skipped"),
        pytest.param("America/Havana", "2026-11-01", 25, id="midnight comes twice"),
        pytest.param("Pacific/Apia", "2011-12-30", 0, id="the whole day is skipped"),
    ],
)
def test_a_day_is_as_long_as_clocks_make_it(zone: str, day: str, hours: float) -> None:
    date = dt.date.fromisoformat(day)
    of = ZoneInfo(zone)
    following = start_of_day(date + dt.timedelta(days=1), of)
    assert following - start_of_day(date, of) == hours * HOUR_S


def test_hours_that_clocks_show_twice_have_two_names() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    start = start_of_day(dt.date(2026, 10, 25), berlin)
    names = [period_name(start + hour * HOUR_S, "hour", berlin) for hour in range(25)]
    assert len(set(names)) == 25
    assert names[2:4] == ["2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00"]
