"""WarmWindow: hours of the week in which a model is kept loaded, as people write them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from mileage.core.errors import ConfigError

__all__ = ["WarmWindow", "parse_window"]

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_MIN = 24 * 60
_TEXT = re.compile(
    r"(?:(?P<days>[a-z]{3}(?:[-,][a-z]{3})*) )?"
    r"(?P<h1>\d{2}):(?P<m1>\d{2})-(?P<h2>\d{2}):(?P<m2>\d{2})"
)
_EXPECTED = "hours like 08:00-18:00 or mon-fri 08:00-18:00 (days: mon tue wed thu fri sat sun)"


class WarmWindow(NamedTuple):
    """From `start_min` to `end_min`, minutes of the local day, on the `days` (0 is Monday) on which
    it starts. One that ends before it starts goes on into the next day."""

    days: frozenset[int]
    start_min: int
    end_min: int

    def covers(self, local: datetime) -> bool:
        """Whether the local time is in it."""
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if self.start_min < self.end_min:
            return day in self.days and self.start_min <= minute < self.end_min
        if minute >= self.start_min:
            return day in self.days
        return minute < self.end_min and (day - 1) % 7 in self.days


def parse_window(key: str, text: str) -> WarmWindow:
    """A window out of the configuration's `key`. Raises ConfigError."""
    found = _TEXT.fullmatch(text.strip().lower())
    if found is None:
        raise ConfigError(key, text, _EXPECTED)
    start, end = (_minute(key, text, *found.group(h, m)) for h, m in (("h1", "m1"), ("h2", "m2")))
    if start == end:
        raise ConfigError(key, text, "a window that ends at another time than it starts")
    return WarmWindow(_days(key, text, found["days"]), start, end)


def _minute(key: str, text: str, hours: str, minutes: str) -> int:
    minute = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or minute > _DAY_MIN:
        raise ConfigError(key, text, _EXPECTED)
    return minute


def _days(key: str, text: str, named: str | None) -> frozenset[int]:
    if named is None:
        return frozenset(range(7))
    days: set[int] = set()
    for part in named.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if first not in _DAYS or last not in _DAYS:
            raise ConfigError(key, text, _EXPECTED)
        start = _DAYS.index(first)
        days.update((start + n) % 7 for n in range((_DAYS.index(last) - start) % 7 + 1))
    return frozenset(days)
