"""Timestamps: dates and times of traces as integers of 100 ns, without a calendar per record."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

__all__ = ["TICKS_PER_S", "ticks_of"]

TICKS_PER_S: Final = 10_000_000
"""The finest that public traces have: 100 ns."""

_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
_STAMP: Final = re.compile(
    rb"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s?"
    rb"(?:(Z|z)|([+-])(\d\d):?(\d\d)?)?"
)


def ticks_of(stamp: bytes) -> int | None:
    """Ticks since 1970 of an ISO date and time; None where it is none.

    A space may stand for the T, seconds and fractions may be missing (what is finer than a tick is
    cut off), and a time without a zone is in UTC.
    """
    match = _STAMP.fullmatch(stamp)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if hour > 23 or minute > 59 or second > 60:
        return None
    try:
        days = dt.date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:
        return None
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    if match[9]:
        offset = int(match[10]) * 3600 + int(match[11] or 0) * 60
        seconds -= offset if match[9] == b"+" else -offset
    fraction = int((match[7] or b"0").ljust(7, b"0")[:7])
    return seconds * TICKS_PER_S + fraction
