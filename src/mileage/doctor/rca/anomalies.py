"""Anomalies: stretches in which a series was far from what is usual at that time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, Literal

import msgspec
import numpy as np

from mileage.doctor.rca.decompose import DAY_S, Decomposition, Method, decompose
from mileage.doctor.rca.series import POINTS_MIN, Floats, History, Series, SeriesKind

__all__ = ["Anomaly", "Scored", "anomalies_of", "run_score", "runs", "scored"]

_PER_SIGMA: Final = 1.4826
"""Median absolute deviation -> standard deviation, of a normal distribution."""
_RUN_Z: Final = 2.5
"""A run is of points at least so many sigmas away, on one side."""
_ONSET_POINTS: Final = 12
_MISSES_MAX: Final = 3
_HITS_RATIO: Final = 0.6
_HOURS: Final = 24
_NEEDED: Final = 5.0
"""Score of a run that counts: one point in four million of normal noise is so far away, and a look
at hundreds of series of hundreds of points is a look at a hundred thousand."""
_POINTS: Final = 3
_GAIN_MAX: Final = 2.0
_SIZE_MIN: Final = 0.1
"""A change of less than a tenth is of no consequence, however sure."""
_FLOOR_RATIO: Final = 0.02
_FLOOR_LOG: Final = 0.03


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of one series. `start` and `end` are points of the grid, `end` is past the last."""

    node: str
    name: str
    kind: SeriesKind
    start: int
    end: int
    direction: Literal["up", "down"]
    score: float
    """Median distance in robust sigmas; more for long runs as far as points are independent."""
    actual: float
    """Median of the stretch."""
    expected: float
    """What would have been usual in it: the median."""
    method: Method
    joint: tuple[str, ...] = ()
    """Of an anomaly of several series together: those that stood out most."""

    @property
    def size_ratio(self) -> float | None:
        """Actual over expected; None where nothing was expected."""
        return self.actual / self.expected if self.expected else None


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """A series and how far each point is from what is usual, in robust sigmas."""

    series: Series
    values: Floats
    expected: Floats
    z: Floats
    correlation: float
    """Of neighbouring residuals."""
    reference: int
    method: Method


def scored(series: Series, history: History, *, stl: bool = True) -> Scored | None:
    """How far each point is from the usual; None where too little is known of that.

    Figures that are above 0 throughout and are times or sizes are looked at by their logarithm:
    their noise is in proportion to themselves. Sigma is that of the median absolute deviation of
    what was learnt from, made larger where that is little, and never less than 2 % of the level.
    """
    raw = series.array()
    known = raw[np.isfinite(raw)]
    logged = bool(len(known) and known.min() > 0.0 and series.kind in ("latency", "load", "memory"))
    values = np.log(raw) if logged else raw
    parts = decompose(
        values,
        step_s=history.step_s,
        first=history.first,
        stl=stl,
    )
    if parts is None:
        return None
    past = parts.residual[: parts.reference]
    past = past[np.isfinite(past)]
    middle = float(np.median(past))
    sigma = (
        _PER_SIGMA * float(np.median(np.abs(past - middle))) * (1.0 + 2.0 / math.sqrt(len(past)))
    )
    if logged:
        sigma = max(sigma, _FLOOR_LOG)
    else:
        # Counts that are mostly 0 have no median deviation: their mean one is what there is.
        sigma = max(sigma, float(np.mean(np.abs(past - middle))) * 1.2533)
        sigma = max(sigma, _FLOOR_RATIO * float(np.median(np.abs(parts.expected))), 1e-9)
    expected = np.exp(parts.expected + middle) if logged else parts.expected + middle
    return Scored(
        series=series,
        values=raw,
        expected=expected,
        z=(parts.residual - middle) / (sigma * _wideness(parts, history.step_s)),
        correlation=_correlation(parts.residual[: parts.reference]),
        reference=parts.reference,
        method=parts.method,
    )


def anomalies_of(each: Scored, first: int) -> list[Anomaly]:
    """The stretches of a series, from the point `first` on, that were unusual, the earliest first.

    A run is of three points or more; three between them that are not known, or not far away, do not
    end it.
    """
    found = []
    for sign in (1, -1):
        z = sign * each.z
        for start, end in runs(z, first):
            score = run_score(z[start:end], each.correlation)
            if score is None:
                continue
            start = _onset(z, start, end, first)
            actual = float(np.nanmedian(each.values[start:end]))
            expected = float(np.median(each.expected[start:end]))
            # Of what never was above 0, such as failures, any is a change.
            if abs(actual - expected) < _SIZE_MIN * abs(expected):
                continue
            found.append(
                Anomaly(
                    node=each.series.node,
                    name=each.series.name,
                    kind=each.series.kind,
                    start=start,
                    end=end,
                    direction="up" if sign > 0 else "down",
                    score=score,
                    actual=actual,
                    expected=expected,
                    method=each.method,
                )
            )
    return sorted(found, key=lambda a: (a.start, a.name))


def runs(z: Floats, first: int) -> Iterator[tuple[int, int]]:
    """Stretches [start, end) of three points or more at 2.5 sigmas or above; three between them
    that are not do not end them."""
    start: int | None = None
    last = -2
    hits = 0
    for index in range(first, len(z)):
        if not z[index] >= _RUN_Z:
            continue
        if start is None or index - last > _MISSES_MAX + 1:
            if start is not None and hits >= _POINTS:
                yield start, last + 1
            start, hits = index, 0
        hits, last = hits + 1, index
    if start is not None and hits >= _POINTS:
        yield start, last + 1


def run_score(run: Floats, correlation: float) -> float | None:
    """The score of a run, of which neighbours are so correlated; None where it does not count."""
    inside = run[np.isfinite(run)]
    if float(np.mean(inside >= _RUN_Z)) < _HITS_RATIO:
        return None
    score = float(np.median(inside)) * _gain(len(inside), correlation)
    return score if score >= _NEEDED else None


def _onset(z: Floats, start: int, end: int, first: int) -> int:
    """Where a step from usual to the level of the run fits best (least squares); what is above that
    level counts as on it."""
    level = float(np.nanmedian(z[start:end]))
    low = max(first, start - _ONSET_POINTS)
    near = np.nan_to_num(z[low : min(end, start + _ONSET_POINTS)], nan=level / 2)
    before = np.concatenate([[0.0], np.cumsum(near**2)])
    after = np.minimum(near - level, 0.0) ** 2
    after = np.concatenate([np.cumsum(after[::-1])[::-1], [0.0]])
    return low + int(np.argmin((before + after)[:-1]))


def _wideness(parts: Decomposition, step_s: float) -> Floats:
    """Where there is a season: how much wider residuals are at each hour of the day than all of
    them, at least 1. Noise that is large at night makes no alarm at night."""
    count, period = len(parts.residual), round(DAY_S / step_s)
    if parts.method == "level" or period < _HOURS:
        return np.ones(count)
    hours = (np.arange(count) % period) * _HOURS // period
    past = np.abs(parts.residual[: parts.reference])
    every = float(np.nanmedian(past))
    wide = np.ones(_HOURS)
    for hour in range(_HOURS):
        near = (hours[: parts.reference] - hour + 1) % _HOURS <= 2
        known = past[near & np.isfinite(past)]
        if len(known) >= POINTS_MIN and every > 0.0:
            wide[hour] = max(1.0, float(np.median(known)) / every)
    return wide[hours]


def _gain(count: int, correlation: float) -> float:
    """What many points that agree are worth more than the three that a run has at least."""
    rho = min(max(correlation, 0.0), 0.99)
    independent = count * (1.0 - rho) / (1.0 + rho)
    return min(_GAIN_MAX, max(1.0, math.sqrt(independent / _POINTS)))


def _correlation(residual: Floats) -> float:
    one, other = residual[:-1], residual[1:]
    both = np.isfinite(one) & np.isfinite(other)
    if both.sum() < 8 or np.ptp(one[both]) == 0.0 or np.ptp(other[both]) == 0.0:
        return 0.0
    return float(np.corrcoef(one[both], other[both])[0, 1])
