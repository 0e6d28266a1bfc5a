"""Calendar: hours, days and months as a time zone has them. The zone is passed in."""

from __future__ import annotations

import datetime as dt
from typing import Final, Literal

__all__ = [
    "HOUR_S",
    "Period",
    "first_hour",
    "hour_of_week",
    "local_time",
    "period_bounds",
    "period_name",
    "start_of_day",
    "utc_s",
]

Period = Literal["hour", "day", "month"]

HOUR_S: Final = 3600
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECOND: Final = dt.timedelta(seconds=1)


def local_time(at_utc_s: int, zone: dt.tzinfo) -> dt.datetime:
    """That moment on the zone's clocks."""
    return (_EPOCH + dt.timedelta(seconds=at_utc_s)).astimezone(zone)


def utc_s(moment: dt.datetime) -> int:
    """Seconds since 1970, rounded down. A moment that clocks skip is the same time after they
    went forward; of one that they show twice, `fold` tells which (by default the first)."""
    return (moment.astimezone(dt.UTC) - _EPOCH) // _SECOND


def start_of_day(day: dt.date, zone: dt.tzinfo) -> int:
    """The first moment of the day, in seconds since 1970: midnight, or where clocks skip that, the
    moment at which they do."""
    midnight = dt.datetime.combine(day, dt.time(), zone)
    at_s = utc_s(midnight)
    if local_time(at_s, zone).date() >= day and local_time(at_s - 1, zone).date() < day:
        return at_s
    # Clocks skip midnight, or even the day, or show it twice: search the hours around it.
    low, high = at_s - 50 * HOUR_S, at_s + 50 * HOUR_S
    while high - low > 1:
        middle = (low + high) // 2
        if local_time(middle, zone).date() < day:
            low = middle
        else:
            high = middle
    return high


def period_bounds(at_utc_s: int, period: Period, zone: dt.tzinfo) -> tuple[int, int]:
    """The first second of the period that the moment is in, and of the next one."""
    if period == "hour":
        return _hour_bounds(at_utc_s, zone)
    day = local_time(at_utc_s, zone).date()
    if period == "day":
        return start_of_day(day, zone), start_of_day(day + dt.timedelta(days=1), zone)
    first = day.replace(day=1)
    following = (first + dt.timedelta(days=32)).replace(day=1)
    return start_of_day(first, zone), start_of_day(following, zone)


def _hour_bounds(at_utc_s: int, zone: dt.tzinfo) -> tuple[int, int]:
    """Hours of the ledger are those of UTC, whatever the zone: in Kathmandu they begin at :45."""
    start = at_utc_s - at_utc_s % HOUR_S
    return start, start + HOUR_S


def first_hour(at_utc_s: int) -> int:
    """The first hour of the ledger that begins at the moment or after it: a row belongs to the
    period in which its hour begins, so that each is in exactly one."""
    return -(-at_utc_s // HOUR_S) * HOUR_S


def period_name(at_utc_s: int, period: Period, zone: dt.tzinfo) -> str:
    """How the period is called: 2026-11, 2026-11-30, 2026-11-30T14:00+01:00 (which tells apart the
    hours that clocks show twice)."""
    local = local_time(at_utc_s, zone)
    if period == "month":
        return f"{local.year:04}-{local.month:02}"
    if period == "day":
        return local.date().isoformat()
    return local.isoformat(timespec="minutes")


def hour_of_week(at_utc_s: int, zone: dt.tzinfo) -> int:
    """0 to 167: Monday 00 is 0."""
    local = local_time(at_utc_s, zone)
    return local.weekday() * 24 + local.hour
