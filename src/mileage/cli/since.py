"""since_utc_ns(): the moment that an option --since names."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

from mileage.core.errors import ConfigError

__all__ = ["since_utc_ns"]

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def since_utc_ns(text: str, now_utc_ns: int) -> int:
    """A moment: a duration before now, or a date (and time), in UTC where it names no zone.

    Nanoseconds since 1970. Raises ConfigError, of --since.
    """
    match = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if match:
        return now_utc_ns - int(match[1]) * _UNITS_S[match[2]] * 1_000_000_000
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError("--since", text, "90s, 15m, 2h, 7d, or 2026-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    since_epoch = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return since_epoch // dt.timedelta(microseconds=1) * 1000
