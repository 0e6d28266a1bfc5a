"""Time zones by name."""

from __future__ import annotations

import datetime as dt
from difflib import get_close_matches
from zoneinfo import ZoneInfo, available_timezones

from mileage.core.errors import ConfigError

__all__ = ["zone_of"]


def zone_of(name: str, key: str = "billing.timezone") -> dt.tzinfo:
    """The zone of that name, such as Europe/Berlin or UTC; ConfigError with the nearest names where
    there is none."""
    if name.upper() == "UTC":
        return dt.UTC  # also on a machine without time zones
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # no such name; a directory's; one with `..` in it
        pass
    by_case = {known.lower(): known for known in available_timezones()}
    near = [by_case[each] for each in get_close_matches(name.lower(), by_case, n=3)]
    hint = f" (nearest: {', '.join(near)})" if near else ""
    raise ConfigError(key, name, f"a time zone, such as Europe/Berlin{hint}")
