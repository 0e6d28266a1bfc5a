"""What a histogram of an engine counted in a window: its mean, and its quantiles as bounds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import Final

import msgspec

from mileage.doctor.collect.page_window import PageWindow
from mileage.measure.quantiles import rank

__all__ = ["HistogramWindow", "histogram_window"]

_LE: Final = "le"
_Key = tuple[tuple[str, str], ...]


class HistogramWindow(msgspec.Struct, frozen=True):
    """What came in the window, over all series of the histogram.

    `edges`: upper bound of each bucket -> how many were at most that; ascending, ends at infinity.
    """

    name: str
    count: float
    total: float
    edges: tuple[tuple[float, float], ...]

    @property
    def mean(self) -> float | None:
        """Exact; None where nothing came."""
        return self.total / self.count if self.count > 0 else None

    def quantile(self, q: float) -> dict[str, float] | None:
        """The bucket that the nearest-rank quantile lies in, as a bound; None where nothing came.

        The bucket is all that is known: a value within it would be a guess.
        """
        count = round(self.edges[-1][1]) if self.edges else 0
        if count < 1:
            return None
        wanted, low = rank(q, count), 0.0
        for edge, seen in self.edges:
            if seen >= wanted - 0.5:
                return {"min": low} if edge == inf else {"min": low, "max": edge}
            low = edge
        return None

    def extent(self) -> dict[str, float] | None:
        """A bound of all that came: where its first bucket begins and its last one ends."""
        filled: list[tuple[float, float]] = []
        low, before = 0.0, 0.0
        for edge, seen in self.edges:
            if seen > before:
                filled.append((low, edge))
            low, before = edge, seen
        if not filled:
            return None
        least, most = filled[0][0], filled[-1][1]
        return {"min": least} if most == inf else {"min": least, "max": most}


def histogram_window(window: PageWindow, names: Iterable[str]) -> HistogramWindow | None:
    """The first of the histograms that the window's last page has; None without any."""
    last = window.last
    for name in names if last is not None else ():
        assert last is not None
        if last.samples(f"{name}_count") and last.samples(f"{name}_sum"):
            return _read(window, name)
    return None


def _read(window: PageWindow, name: str) -> HistogramWindow | None:
    counts, totals = window.series(f"{name}_count"), window.series(f"{name}_sum")
    if not counts or not totals:
        return None
    series: dict[_Key, dict[float, float]] = {}
    for labels, grown in window.series(f"{name}_bucket"):
        edge = _edge(labels.get(_LE, ""))
        if edge is not None:
            who = tuple(sorted(item for item in labels.items() if item[0] != _LE))
            series.setdefault(who, {})[edge] = grown
    count, total = (sum(value for _, value in grown) for grown in (counts, totals))
    return HistogramWindow(name, count, total, _added(series.values()))


def _added(series: Collection[Mapping[float, float]]) -> tuple[tuple[float, float], ...]:
    """The buckets that all series have, added up, in order and none below the one before."""
    common = set.intersection(*(set(edges) for edges in series)) if series else set()
    found: list[tuple[float, float]] = []
    most = 0.0
    for edge in sorted(common):
        most = max(most, sum(edges[edge] for edges in series))
        found.append((edge, most))
    return tuple(found)


def _edge(text: str) -> float | None:
    try:
        edge = float(text)
    except ValueError:
        return None
    return edge if edge >= 0 else None
