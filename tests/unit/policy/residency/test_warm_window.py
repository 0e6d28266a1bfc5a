"""Hours in which a model stays loaded."""

from __future__ import annotations

from datetime import datetime

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
