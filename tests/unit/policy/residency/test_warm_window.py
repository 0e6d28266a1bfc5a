"""Hours in which a model stays loaded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.residency.warm_window import parse_window


def at(text: str) -> datetime:
    """A time of the week that begins on Monday, 2 November 2026."""
    day, _, time = text.partition(" ")
    number = 2 + ("mon", "tue", "wed", "thu", "fri", "sat", "sun").index(day)
    return datetime.fromisoformat(f"2026-11-{number:02}T{time}")


@pytest.mark.parametrize(
    ("window", "time", "covered"),
    [
        ("08:00-18:00", "sun 08:00", True),
        ("08:00-18:00", "sun 18:00", False),
        ("mon-fri 08:00-18:00", "fri 17:59", True),
        ("mon-fri 08:00-18:00", "sat 12:00", False),
        ("sat,sun 10:00-12:00", "sun 11:00", True),
        ("fri-mon 10:00-12:00", "mon 11:00", True),
        ("fri-mon 10:00-12:00", "tue 11:00", False),
        ("fri 22:00-02:00", "sat 01:59", True),
        ("fri 22:00-02:00", "fri 01:00", False),
        ("sun 22:00-02:00", "mon 01:00", True),
        ("mon 00:00-24:00", "mon 23:59", True),
    ],
)
def test_what_a_window_covers(window: str, time: str, covered: bool) -> None:
    assert parse_window("idle.keep_warm", window).covers(at(time)) is covered


@pytest.mark.parametrize(
    "text", ["", "8-18", "08:00", "25:00-26:00", "08:60-09:00", "xyz 08:00-09:00", "08:00-08:00"]
)
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_window("idle.keep_warm", text)
    assert caught.value.key == "idle.keep_warm"


BERLIN = ZoneInfo("Europe/Berlin")
FORWARD, BACK = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)
"""Sundays on which clocks go from 2 to 3, and from 3 back to 2, at 1 o'clock UTC."""


@pytest.mark.parametrize(
    ("window", "day", "from_utc", "minutes"),
    [
        pytest.param("sun 08:00-18:00", FORWARD, "06:00", 600, id="hours of a day as ever"),
        pytest.param("sun 08:00-18:00", BACK, "07:00", 600, id="in autumn, too"),
        pytest.param("sun 02:00-03:00", FORWARD, None, 0, id="an hour that there is not"),
        pytest.param("sun 02:30-04:00", FORWARD, "01:00", 60, id="one that begins in it"),
        pytest.param("sun 02:00-03:00", BACK, "00:00", 120, id="an hour that there is twice"),
        pytest.param("sun 00:00-24:00", FORWARD, "23:00", 23 * 60, id="a day of 23 hours"),
        pytest.param("sun 00:00-24:00", BACK, "22:00", 25 * 60, id="a day of 25 hours"),
        pytest.param("sat 22:00-04:00", FORWARD, "21:00", 5 * 60, id="a night is an hour shorter"),
        pytest.param("sat 22:00-04:00", BACK, "20:00", 7 * 60, id="or longer"),
    ],
)
def test_what_a_window_covers_where_clocks_change(
    window: str, day: datetime, from_utc: str | None, minutes: int
) -> None:
    parsed = parse_window("idle.keep_warm", window)
    times = [day + timedelta(minutes=minute) for minute in range(-24 * 60, 48 * 60)]
    covered = [each for each in times if parsed.covers(each.astimezone(BERLIN))]
    assert len(covered) == minutes
    assert (f"{covered[0]:%H:%M}" if covered else None) == from_utc
    assert all(b - a == timedelta(minutes=1) for a, b in pairwise(covered)), "without a gap"
