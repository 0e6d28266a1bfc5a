"""A line of an engine's log: when it was written, by which rank, and what it says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

__all__ = ["LogLine", "log_lines"]

LINE_MAX: Final = 200_000
_COLOR: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TIME: Final = re.compile(
    r"(?:(?P<year>\d{4})-)?(?P<month>\d{2})-(?P<day>\d{2})[ T](?P<clock>\d{2}:\d{2}:\d{2})"
    r"|\[(?P<us_month>\d{2})/(?P<us_day>\d{2})/(?P<us_year>\d{4})-(?P<us_clock>\d{2}:\d{2}:\d{2})"
    r"|^[IWEF](?P<g_month>\d{2})(?P<g_day>\d{2}) (?P<g_clock>\d{2}:\d{2}:\d{2})"
    r"|\[(?P<alone>\d{2}:\d{2}:\d{2})"
)
_TIME_WITHIN: Final = 120
_RANK: Final = re.compile(r"\bDP(\d+)\b|\bEngine (\d{3})\b|\[gpu=(\d+)\]")
_WORKER: Final = re.compile(
    r"\b(?:TP|PP|EP)\d+\b|\[gpu=\d+\]|VllmWorkerProcess pid=\d+|Worker\w* pid=\d+|Worker_\w+"
)
_DAY_S: Final = 86_400.0


class LogLine(msgspec.Struct, frozen=True):
    """`at_s`: seconds on the log's own clock, None where the line has no time.

    `rank`: of the data-parallel scheduler that wrote it, '' where it says none; `worker`: which
    process of several that say the same, '' where it says none.
    """

    text: str
    at_s: float | None
    rank: str
    worker: str


def log_lines(lines: Iterable[str]) -> Iterator[LogLine]:
    """Lines without colours. A clock without a date that goes back has passed midnight."""
    midnights = 0
    last_s: float | None = None
    for raw in lines:
        text = _COLOR.sub("", raw[:LINE_MAX]).rstrip("\r\n")
        at_s, has_date = _time_of(text)
        if at_s is not None and not has_date:
            at_s += midnights * _DAY_S
            if last_s is not None and at_s < last_s - _DAY_S / 2:
                midnights += 1
                at_s += _DAY_S
        last_s = at_s if at_s is not None else last_s
        head = text[:_TIME_WITHIN]
        rank, worker = _RANK.search(head), _WORKER.search(head)
        number = next((part for part in rank.groups() if part), "") if rank is not None else ""
        yield LogLine(
            text,
            at_s,
            str(int(number)) if number else "",
            worker[0] if worker is not None else "",
        )


def _time_of(text: str) -> tuple[float | None, bool]:
    """Seconds since some moment, and whether the line has a date; a year that is not told is 2024:
    a leap year, in which every date exists."""
    match = _TIME.search(text, 0, _TIME_WITHIN)
    if match is None:
        return None, False
    part = match.groupdict()
    clock = part["clock"] or part["us_clock"] or part["g_clock"] or part["alone"]
    hours, minutes, seconds = (int(number) for number in clock.split(":"))
    if hours > 23 or minutes > 59 or seconds > 60:
        return None, False
    of_day_s = hours * 3600.0 + minutes * 60.0 + seconds
    if part["alone"] is not None:
        return of_day_s, False
    year = int(part["year"] or part["us_year"] or 2024)
    month = int(part["month"] or part["us_month"] or part["g_month"])
    day = int(part["day"] or part["us_day"] or part["g_day"])
    try:
        date = datetime(year, month, day, tzinfo=UTC)
    except ValueError:
        return None, False
    return date.timestamp() + of_day_s, True
