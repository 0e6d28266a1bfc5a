"""Time series of the dashboard: rings of fixed size, fed once a second from the fleet's state."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence

import msgspec

from mileage.core.replica import ReplicaView
from mileage.gateway.admin.rates import MET_RATIO, QUANTILES, Key, WorkerRates
from mileage.gateway.admin.targets import limit_of, newest_governor, target_rows
from mileage.gateway.messages import ReplicaStatus, Report
from mileage.measure.metrics import quantile

__all__ = ["Labelled", "Ring", "Sample", "SeriesDocument", "SeriesStore"]

LEVELS = ((1, 3600), (10, 900), (60, 1440))
"""Seconds per point and points kept: an hour, two and a half hours, a day."""
POINTS_MAX = 1500
"""Points of one answer: past it the next coarser level is taken."""
COLUMNS_MAX = 512
LATE_MAX = 3
"""Seconds that a late sample stands for too: its rates reach back over them. More are a gap."""
VIEW_AGE_MAX_S = 15.0
"""An older observation is a gap in the series, not a figure."""

_VIEW_FIELDS = ("running", "waiting", "kv_cache_usage_ratio")


class Labelled(msgspec.Struct, frozen=True):
    """The points of one label value; null where nothing was seen."""

    label: str
    values: list[float | None]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The newest second. `groups`: figures by label value, as pairs."""

    at_utc_s: float
    values: dict[str, float | None]
    groups: dict[str, list[tuple[str, float | None]]]


class SeriesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Points every `step_s`, oldest first; all lists are as long as `times_utc_s`.

    `ceilings`: what the histograms can tell at most; a figure that equals it is "at least that".
    """

    window_s: int
    step_s: int
    times_utc_s: list[float]
    values: dict[str, list[float | None]]
    groups: dict[str, list[Labelled]]
    ceilings: dict[str, float]
    columns_dropped: int


class Ring:
    """Columns of one level. A column unseen for a whole turn is dropped; a new one past the bound
    is refused and counted. Points that nobody put are gaps.
    """

    def __init__(self, step_s: int, points: int, *, columns_max: int = COLUMNS_MAX) -> None:
        self.step_s, self.points, self.dropped = step_s, points, 0
        self._columns_max = columns_max
        self._columns: dict[Key, array[float]] = {}
        self._seen: dict[Key, int] = {}
        self._index: int | None = None
        self._first = 0

    def put(self, index: int, values: Mapping[Key, float]) -> None:
        """Set the point of this index (whole steps since the clock's zero); never an older one."""
        if self._index is None:
            self._index = self._first = index
        if index < self._index:
            return
        self._advance(index)
        for key, value in values.items():
            column = self._columns.get(key)
            if column is None:
                if len(self._columns) >= self._columns_max:
                    self.dropped += 1
                    continue
                column = self._columns[key] = array("d", [math.nan]) * self.points
            column[index % self.points] = value
            self._seen[key] = index

    def read(self, count: int) -> tuple[range, dict[Key, list[float | None]]]:
        """The last `count` points, or as many as there are: their indices and columns."""
        if self._index is None:
            return range(0), {}
        stop = self._index + 1
        start = max(stop - min(count, self.points), self._first)
        indices = range(start, stop)
        columns: dict[Key, list[float | None]] = {}
        for key, column in self._columns.items():
            found = [column[index % self.points] for index in indices]
            values = [None if math.isnan(value) else value for value in found]
            if any(value is not None for value in values):
                columns[key] = values
        return indices, columns

    def _advance(self, index: int) -> None:
        assert self._index is not None
        for passed in range(max(self._index + 1, index - self.points + 1), index + 1):
            for column in self._columns.values():
                column[passed % self.points] = math.nan
        self._index = index
        self._first = max(self._first, index - self.points + 1)
        for key in [key for key, seen in self._seen.items() if seen <= index - self.points]:
            del self._columns[key], self._seen[key]


class SeriesStore:
    """One point a second from reports and observations, and the coarser levels made of them.

    Rates and gauges of a coarser level are means of its seconds; its quantiles and shares come
    from all observations of its span, because the mean of p99s is no p99.
    """

    def __init__(self, *, levels: Sequence[tuple[int, int]] = LEVELS) -> None:
        self._fine = Ring(*levels[0])
        self._coarse = [_Coarse(Ring(*level)) for level in levels[1:]]
        self._rates = WorkerRates()
        self._latest: dict[Key, float] = {}
        self._latest_s: float | None = None

    def sample(self, reports: Sequence[Report], views: Sequence[ReplicaView], now_s: float) -> None:
        """Take the state of this second. `now_s` is the monotonic clock of reports and views."""
        increments = self._rates.update(reports, now_s)
        means = self._rates.rates() | self._gauges(reports, views, now_s)
        found = means | _figures(self._rates.bounds, self._rates.window_counts())
        self._latest = {key: _rounded(value) for key, value in found.items()}
        self._put_fine(now_s)
        for level in self._coarse:
            level.add(now_s, means, increments, self._rates.bounds)

    def latest(self, utc_offset_s: float) -> Sample | None:
        """The newest point; None before the first. `utc_offset_s` is UTC minus monotonic time."""
        if self._latest_s is None:
            return None
        values: dict[str, float | None] = {}
        groups: dict[str, list[tuple[str, float | None]]] = {}
        for (name, label), value in self._latest.items():
            if label is None:
                values[name] = value
            else:
                groups.setdefault(name, []).append((label, value))
        at_utc_s = self._latest_s // self._fine.step_s * self._fine.step_s + utc_offset_s
        return Sample(at_utc_s=round(at_utc_s, 3), values=values, groups=groups)

    def read(
        self, window_s: int, utc_offset_s: float, *, step_s: int | None = None
    ) -> SeriesDocument:
        """The last `window_s` seconds at the finest level that covers them with few enough points.

        Raises KeyError for a `step_s` that is no level's.
        """
        rings = [self._fine, *(level.ring for level in self._coarse)]
        ring = _choose(rings, window_s, step_s)
        indices, columns = ring.read(math.ceil(window_s / ring.step_s))
        values: dict[str, list[float | None]] = {}
        groups: dict[str, list[Labelled]] = {}
        for (name, label), points in columns.items():
            if label is None:
                values[name] = points
            else:
                groups.setdefault(name, []).append(Labelled(label, points))
        return SeriesDocument(
            window_s=window_s,
            step_s=ring.step_s,
            times_utc_s=[round(index * ring.step_s + utc_offset_s, 3) for index in indices],
            values=values,
            groups=groups,
            ceilings={name: bounds[-1] for name, bounds in self._rates.bounds.items() if bounds},
            columns_dropped=ring.dropped,
        )

    def _put_fine(self, now_s: float) -> None:
        step_s, index = self._fine.step_s, int(now_s // self._fine.step_s)
        if self._latest_s is not None:
            first_missed = int(self._latest_s // step_s) + 1
            if index - first_missed <= LATE_MAX:
                for missed in range(first_missed, index):
                    self._fine.put(missed, self._latest)
        self._latest_s = now_s
        self._fine.put(index, self._latest)

    def _gauges(
        self, reports: Sequence[Report], views: Sequence[ReplicaView], now_s: float
    ) -> dict[Key, float]:
        fresh = [report for report in reports if self._rates.is_fresh(report, now_s)]
        gauges: dict[Key, float] = {}
        if fresh:
            gauges["in_flight", None] = sum(report.in_flight for report in fresh)
            gauges["connections", None] = sum(report.connections for report in fresh)
        statuses: dict[str, list[ReplicaStatus]] = {}
        for report in fresh:
            for status in report.replicas:
                statuses.setdefault(status.name, []).append(status)
        for name, known in statuses.items():
            gauges["replica_in_flight", name] = sum(each.in_flight for each in known)
            limit = limit_of(known)
            if limit is not None:
                gauges["limit", name] = limit
        gauges |= _governed(fresh)
        for view in views:
            if view.age_s(now_s) > VIEW_AGE_MAX_S:
                continue
            for field in _VIEW_FIELDS:
                value = getattr(view, field)
                if value is not None:
                    gauges[field, view.replica] = value
        return gauges


class _Coarse:
    """A coarser level: its current point is made anew from each second until the step is over."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._index: int | None = None
        self._sums: dict[Key, tuple[float, int]] = {}
        self._counts: dict[Key, list[int]] = {}

    def add(
        self,
        now_s: float,
        means: Mapping[Key, float],
        increments: Mapping[Key, list[int]],
        bounds: Mapping[str, tuple[float, ...]],
    ) -> None:
        index = int(now_s // self.ring.step_s)
        if index != self._index:
            self._index, self._sums, self._counts = index, {}, {}
        for key, value in means.items():
            total, seconds = self._sums.get(key, (0.0, 0))
            self._sums[key] = (total + value, seconds + 1)
        for key, counts in increments.items():
            known = self._counts.get(key)
            pairs = zip(known, counts, strict=True) if known else ((0, count) for count in counts)
            self._counts[key] = [a + b for a, b in pairs]
        point = {key: _rounded(total / seconds) for key, (total, seconds) in self._sums.items()}
        for key, value in _figures(bounds, self._counts).items():
            point[key] = _rounded(value)
        self.ring.put(index, point)


def _governed(reports: Sequence[Report]) -> dict[Key, float]:
    """What the governors hold, in all and by replica, and the targets in force."""
    gauges: dict[Key, float] = {}
    states = [r.governor.state for r in reports if r.governor and r.governor.state is not None]
    for state in states:
        gauges["held", None] = gauges.get(("held", None), 0) + state.held
        for name, waiting in state.waiting.items():
            gauges["held", name] = gauges.get(("held", name), 0) + waiting
    newest = newest_governor(reports)
    for row in target_rows(newest.slo) if newest is not None else ():
        for series, target_s in (("ttft_target_s", row.ttft_s), ("itl_target_s", row.itl_s)):
            if target_s is not None:
                gauges[series, row.model] = target_s
    return gauges


def _figures(
    bounds: Mapping[str, tuple[float, ...]], counts: Mapping[Key, list[int]]
) -> dict[Key, float]:
    """Quantiles of histograms, and the share of what met its target; without any: absent."""
    found: dict[Key, float] = {}
    for (name, label), observed in counts.items():
        if name == MET_RATIO:
            if any(observed):
                found[name, label] = observed[0] / sum(observed)
            continue
        for suffix, q in QUANTILES:
            value = quantile(bounds[name], observed, q)
            if value is not None:
                found[f"{name.removesuffix('_s')}_{suffix}_s", None] = value
    return found


def _choose(rings: Sequence[Ring], window_s: int, step_s: int | None) -> Ring:
    if step_s is not None:
        return {ring.step_s: ring for ring in rings}[step_s]
    for ring in rings:
        points = math.ceil(window_s / ring.step_s)
        if points <= min(ring.points, POINTS_MAX):
            return ring
    return rings[-1]


def _rounded(value: float) -> float:
    """Five significant digits: what a chart shows, at a third of the bytes."""
    return float(f"{value:.5g}")
