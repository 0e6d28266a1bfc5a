"""A window: pages of one engine, read one after another, and what their series did meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Final, NamedTuple

from mileage.measure.metrics_page import Page, Scheduler, Values, fold, possible
from mileage.measure.page_expressions import Expression

__all__ = ["PageAt", "PageWindow"]

_STARTED: Final = "process_start_time_seconds"
_START_STEP_S: Final = 1.0
"""A start time that differs by less is the same one: it is computed from boot time and ticks."""


class PageAt(NamedTuple):
    """A page and when it was asked for: on a monotonic clock, and in Unix time where known."""

    at_s: float
    page: Page
    at_utc_s: float | None = None


class PageWindow:
    """Pages in the order of their times; one page alone is a window since the engine's start.

    Counters give what they grew by: one that falls began anew in between, and its new value is what
    it grew by at least. A series that is not on an earlier page began at 0.
    """

    def __init__(self, pages: Iterable[PageAt]) -> None:
        self._pages = sorted(pages, key=lambda page: page.at_s)

    @property
    def pages(self) -> Sequence[PageAt]:
        """The pages, oldest first."""
        return self._pages

    @property
    def seconds(self) -> float | None:
        """Time from the first page to the last; None for one page, whose counters span all since
        the engine's start."""
        if len(self._pages) < 2:
            return None
        length_s = self._pages[-1].at_s - self._pages[0].at_s
        return length_s if length_s > 0 else None

    @property
    def last(self) -> Page | None:
        """The newest page; None where there is none."""
        return self._pages[-1].page if self._pages else None

    def chosen(self, expressions: Iterable[Expression], most: float = inf) -> Expression | None:
        """The first of the expressions that gives possible values on a page, newest first, and none
        above `most` on any."""
        for expression in expressions:
            readings = [expression.read(at.page) for at in reversed(self._pages)]
            usable = any(values and None not in values.values() for values in readings)
            if usable and all(
                value is None or value <= most for values in readings for value in values.values()
            ):
                return expression
        return None

    def gauge(self, expression: Expression) -> dict[Scheduler, list[float]]:
        """Its values on all pages that have it, in order, by scheduler."""
        found: dict[Scheduler, list[float]] = {}
        for at in self._pages:
            for who, value in expression.read(at.page).items():
                if value is not None:
                    found.setdefault(who, []).append(value)
        return dict(sorted(found.items(), key=lambda item: _order(item[0])))

    def increase(self, expression: Expression) -> dict[Scheduler, float]:
        """What it grew by from the first page to the last, by scheduler."""
        return dict(
            sorted(
                self._increases(expression.read(at.page) for at in self._pages),
                key=lambda item: _order(item[0]),
            )
        )

    def named_increase(self, name: str, **labels: str) -> float | None:
        """What the series of a name with these labels grew by, all together; None without any."""
        found = dict(
            self._increases(
                fold(
                    (sample.labels, possible(sample.value))
                    for sample in at.page.samples(name)
                    if all(sample.labels.get(key) == value for key, value in labels.items())
                )
                for at in self._pages
            )
        )
        return sum(found.values()) if found else None

    def series(self, name: str) -> list[tuple[Mapping[str, str], float]]:
        """What each series of a name grew by, with its labels; none where a value is impossible."""
        labels: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
        readings: list[Values] = []
        for at in self._pages:
            values: Values = {}
            for sample in at.page.samples(name):
                key = tuple(sorted(sample.labels.items()))
                labels[key] = sample.labels
                values[Scheduler("", key)] = possible(sample.value)
            readings.append(values)
        grown = dict(self._increases(readings))
        if len(grown) < len(labels):
            return []
        return [(labels[who.rest], value) for who, value in grown.items()]

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """What the series of a name grew by, all together by the value of one label."""
        grown: dict[str, float] = {}
        for labels, value in self.series(name):
            if label in labels:
                grown[labels[label]] = grown.get(labels[label], 0.0) + value
        return grown

    def started_at_utc_s(self) -> float | None:
        """Unix time at which the process began, by the newest page that says so."""
        for at in reversed(self._pages):
            found = _started(at.page)
            if found is not None:
                return found
        return None

    def restarts(self, counters: Iterable[Expression]) -> int | None:
        """How often the engine began anew in the window; None where nothing can tell.

        By its process's start time, else by any of `counters` that fell.
        """
        if self.seconds is None:
            return None
        starts = [found for at in self._pages if (found := _started(at.page)) is not None]
        if len(starts) >= 2:
            return sum(abs(b - a) > _START_STEP_S for a, b in pairwise(starts))
        fell: set[int] = set()
        seen = False
        for counter in counters:
            values = [counter.read(at.page) for at in self._pages]
            for index, (before, after) in enumerate(pairwise(values)):
                pairs = [(before[who], after[who]) for who in before.keys() & after.keys()]
                seen = seen or any(a for a, _ in pairs)
                if any(a is not None and b is not None and b < a for a, b in pairs):
                    fell.add(index)
        return len(fell) if seen else None

    def _increases(self, readings: Iterable[Values]) -> Iterator[tuple[Scheduler, float]]:
        """Growth by scheduler over readings in order; one whose value is impossible is left out."""
        grown: dict[Scheduler, float] = {}
        last: dict[Scheduler, float] = {}
        spoilt: set[Scheduler] = set()
        first = len(self._pages) > 1
        for values in readings:
            for who, value in values.items():
                if value is None:
                    spoilt.add(who)
                elif first:
                    grown[who] = 0.0
                    last[who] = value
                else:
                    before = last.get(who, 0.0)
                    grown[who] = grown.get(who, 0.0) + (
                        value - before if value >= before else value
                    )
                    last[who] = value
            first = False
        return ((who, value) for who, value in grown.items() if who not in spoilt)


def _started(page: Page) -> float | None:
    values = [possible(sample.value) for sample in page.samples(_STARTED)]
    return values[0] if len(values) == 1 else None


def _order(who: Scheduler) -> tuple[float, str, tuple[tuple[str, str], ...]]:
    """Ranks by number, then everything else by name."""
    number = float(who.rank) if who.rank.isascii() and who.rank.isdigit() else -1.0
    return number, who.rank, who.rest
