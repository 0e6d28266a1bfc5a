"""Window: the hours that a command of `mileage cost` looks at, as its options say."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, Final, NamedTuple

from mileage.core.errors import ConfigError
from mileage.ledger.calendar import (
    HOUR_S,
    first_hour,
    local_time,
    period_bounds,
    start_of_day,
    utc_s,
)

__all__ = ["Window", "window_of"]

_UNITS_S: Final = {"m": 60, "h": HOUR_S, "d": 86_400, "w": 7 * 86_400}
_MOMENT: Final = (
    "24h, 30d, 2026-01 (a month), 2026-01-31, 2026-01-31T12:00, today, yesterday, this-month or "
    "last-month"
)


class Window(NamedTuple):
    """From `since_utc_s` up to, and without, `until_utc_s`: the hours that begin in that time."""

    since_utc_s: int
    until_utc_s: int
    zone: dt.tzinfo
    zone_name: str

    @property
    def first_hour_utc_s(self) -> int:
        """The first hour of the ledger that is in it."""
        return first_hour(self.since_utc_s)

    @property
    def end_hour_utc_s(self) -> int:
        """The first hour of the ledger that is after it."""
        return first_hour(self.until_utc_s)

    def text(self, at_utc_s: int) -> str:
        """A moment for people, on the clocks of its zone."""
        return local_time(at_utc_s, self.zone).strftime("%Y-%m-%d %H:%M")

    def document(self) -> dict[str, Any]:
        """As JSON documents have it."""
        return {
            "since": local_time(self.since_utc_s, self.zone).isoformat(),
            "until": local_time(self.until_utc_s, self.zone).isoformat(),
            "since_utc_s": self.since_utc_s,
            "until_utc_s": self.until_utc_s,
            "timezone": self.zone_name,
        }


def window_of(
    since: str, until: str | None, zone: dt.tzinfo, zone_name: str, now_utc_s: int
) -> Window:
    """The window of `--since` and `--until`; ConfigError for what is no time, or in no order."""
    start, end = _bounds("--since", since, zone, now_utc_s)
    if until is not None:
        end = _bounds("--until", until, zone, now_utc_s)[0]
    end = min(now_utc_s, end)
    if start >= now_utc_s:
        raise ConfigError("--since", since, "a time in the past")
    if end <= start:
        moment = local_time(start, zone).isoformat(timespec="minutes")
        raise ConfigError("--until", until, f"a time after --since ({moment})")
    return Window(start, end, zone, zone_name)


def _bounds(option: str, text: str, zone: dt.tzinfo, now_utc_s: int) -> tuple[int, int]:
    """The first moment of what the text names, and the end of it: now where it has none."""
    if match := re.fullmatch(r"(\d{1,6})([mhdw])", text):
        at = max(0, now_utc_s - int(match[1]) * _UNITS_S[match[2]])
        return at - at % HOUR_S, now_utc_s
    day, month = period_bounds(now_utc_s, "day", zone), period_bounds(now_utc_s, "month", zone)
    named = {
        "today": lambda: day,
        "yesterday": lambda: period_bounds(day[0] - 1, "day", zone),
        "this-month": lambda: month,
        "last-month": lambda: period_bounds(month[0] - 1, "month", zone),
        "now": lambda: (now_utc_s, now_utc_s),
    }
    if text in named:
        return named[text]()
    try:
        if re.fullmatch(r"\d{4}-\d{2}", text):
            first = start_of_day(dt.date.fromisoformat(f"{text}-01"), zone)
            return period_bounds(first, "month", zone)
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return start_of_day(dt.date.fromisoformat(text), zone), now_utc_s
        moment = dt.datetime.fromisoformat(text)
        at = utc_s(moment if moment.tzinfo is not None else moment.replace(tzinfo=zone))
    except (ValueError, OverflowError):
        raise ConfigError(option, text, _MOMENT) from None
    return at - at % _UNITS_S["m"], now_utc_s
