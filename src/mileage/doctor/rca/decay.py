"""Decay: whether throughput falls as memory fragments, grows, or as the host switches contexts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np

from mileage.doctor.rca.series import POINTS_MIN, Floats, History, Series

__all__ = ["Relation", "relations"]

Found = Literal["related", "common_trend", "none", "too_little"]
"""related: they move together beyond what load and the passing of time explain; common_trend: both
only rise or fall in the same stretch, which any two such series do; none: no relation was seen."""

_TARGETS: Final = ("decode_tokens_per_s", "output_tokens_per_s")
_DRIVERS: Final = (
    "kv_fragmentation_ratio",
    "memory_fragmentation_ratio",
    "fragmentation_ratio",
    "context_switches_per_s",
    "voluntary_switches_per_s",
    "involuntary_switches_per_s",
    "rss_bytes",
    "memory_used_bytes",
    "preemptions_per_s",
)
_LAG_MAX_S: Final = 1800.0
_LAGS_MAX: Final = 24
_Z: Final = 1.959964
_POINTS: Final = 48
_CORRELATION_MIN: Final = 0.3


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """One throughput against one driver that may wear it down, of the same node or of one below.

    `correlation` is at the lag at which it is strongest, load taken out; `beyond_trend` is that
    with a line over time taken out of both as well. `slope` is the change of throughput per unit
    of the driver, with the bounds of its 95 % interval.
    """

    node: str
    target: str
    driver_node: str
    driver: str
    found: Found
    points: int
    lag_s: float | None = None
    """The driver is so much earlier."""
    correlation: float | None = None
    beyond_trend: float | None = None
    slope: float | None = None
    slope_low: float | None = None
    slope_high: float | None = None
    lost_ratio: float | None = None
    """Share of the throughput that the driver's growth over the record goes with."""


def relations(history: History, links: Sequence[tuple[str, str]] = ()) -> list[Relation]:
    """Every throughput against every driver of its node, and of nodes that `links` say it runs on.

    The strongest relation first, those without one last. Only the sign that wears down counts: more
    of the driver, less throughput.
    """
    by_node: dict[str, dict[str, Series]] = {}
    for each in history.series:
        by_node.setdefault(each.node, {})[each.name] = each
    below: dict[str, set[str]] = {}
    for above, under in links:
        below.setdefault(above, set()).add(under)
    pairs = []
    for node, figures in sorted(by_node.items()):
        targets = [figures[name] for name in _TARGETS if name in figures][:1]
        for under in [node, *sorted(below.get(node, ()))]:
            drivers = [s for name, s in by_node.get(under, {}).items() if name in _DRIVERS]
            pairs += [(t, d, figures.get("requests_per_s")) for t in targets for d in drivers]
    looks = max(1, len(pairs))
    found = [_relation(t, d, load, history.step_s, looks) for t, d, load in pairs]
    order = {"related": 0, "common_trend": 1, "none": 2, "too_little": 3}
    return sorted(
        found,
        key=lambda r: (order[r.found], -abs(r.beyond_trend or 0.0), r.node, r.driver),
    )


def _relation(
    target: Series, driver: Series, load: Series | None, step_s: float, looks: int
) -> Relation:
    y, x = target.array(), driver.array()
    z = None if load is None or load is target else load.array()
    # A decode speed is per request: it is compared as it is seen.
    lags = range(min(_LAGS_MAX, int(_LAG_MAX_S / step_s), len(y) // 4) + 1)
    best: tuple[float, int, Floats] | None = None
    for lag in lags:
        table = _table(y, x, z, lag)
        if len(table) < _POINTS or np.ptp(table[:, 0]) == 0.0 or np.ptp(table[:, 1]) == 0.0:
            continue
        r = _partial(table, time=True)
        # A longer lag has to be better by more than chance makes it.
        if best is None or r < best[0] - 0.05:
            best = r, lag, table
    if best is None:
        points = int((np.isfinite(y) & np.isfinite(x)).sum())
        return _named(target, driver, found="too_little", points=points)
    beyond, lag, table = best
    level = _partial(table, time=False)
    slope, error, mean = _slope(table)
    grown = _growth(table[:, 1])
    found = _judged(table, level, beyond, looks * len(lags))
    return _named(
        target,
        driver,
        found=found,
        points=len(table),
        lag_s=lag * step_s,
        correlation=level,
        beyond_trend=beyond,
        slope=slope,
        slope_low=slope - _Z * error,
        slope_high=slope + _Z * error,
        lost_ratio=max(0.0, -slope * grown / mean) if mean > 0 and found != "none" else None,
    )


def _named(target: Series, driver: Series, **known: Any) -> Relation:
    return Relation(
        node=target.node,
        target=target.name,
        driver_node=driver.node,
        driver=driver.name,
        **known,
    )


def _table(y: Floats, x: Floats, z: Floats | None, lag: int) -> Floats:
    """Rows of throughput, driver `lag` points before, load, and time; those that are known."""
    count = len(y) - lag
    columns = [y[lag:], x[:count]]
    if z is not None:
        columns.append(z[lag:])
    columns.append(np.arange(count, dtype=np.float64))
    table = np.column_stack(columns)
    return table[np.isfinite(table).all(axis=1)]


def _residuals(table: Floats, *, time: bool) -> tuple[Floats, Floats]:
    """Throughput and driver without what load, and time, explain of them (least squares)."""
    others = table[:, 2:] if time else table[:, 2:-1]
    spread = others.std(axis=0)
    others = (others - others.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    base = np.column_stack([np.ones(len(table)), others])
    scale = np.abs(table[:, :2]).max(axis=0)
    both = table[:, :2] / np.where(scale > 0.0, scale, 1.0)
    fit, *_ = np.linalg.lstsq(base, both, rcond=None)
    left = (both - base @ fit) * scale
    return left[:, 0], left[:, 1]


def _partial(table: Floats, *, time: bool) -> float:
    y, x = _residuals(table, time=time)
    size = float(np.linalg.norm(y) * np.linalg.norm(x))
    floor = 1e-12 * float(np.abs(table[:, 0]).max() * np.abs(table[:, 1]).max()) * len(table)
    return float(y @ x) / size if size > floor else 0.0


def _independent(y: Floats, x: Floats) -> float:
    """Independent pairs in two series that are correlated with themselves (Bartlett 1935)."""
    product = min(0.99, max(0.0, _neighbours(y) * _neighbours(x)))
    return max(4.0, len(y) * (1.0 - product) / (1.0 + product))


def _neighbours(values: Floats) -> float:
    if np.ptp(values) == 0.0:
        return 0.0
    found = float(np.corrcoef(values[:-1], values[1:])[0, 1])
    return found if math.isfinite(found) else 0.0


def _judged(table: Floats, level: float, beyond: float, looks: int) -> Found:
    # Many lags and drivers were looked at: the limit is that of one look in so many (Bonferroni),
    # by Fisher's z of the independent pairs.
    limit = math.sqrt(2.0 * math.log(40.0 * looks))
    y, x = _residuals(table, time=True)
    strong = -math.atanh(max(beyond, -0.999999)) * math.sqrt(max(1.0, _independent(y, x) - 3.0))
    if beyond <= -_CORRELATION_MIN and strong >= limit:
        return "related"
    grown, fallen = _growth(table[:, 1]), _growth(table[:, 0])
    straight = abs(_line(table[:, 1])) >= 0.5 and abs(_line(table[:, 0])) >= 0.5
    return "common_trend" if level <= -0.5 and straight and grown * fallen < 0.0 else "none"


def _line(values: Floats) -> float:
    """Correlation with time."""
    if np.ptp(values) == 0.0:
        return 0.0
    return float(np.corrcoef(values, np.arange(len(values)))[0, 1])


def _growth(values: Floats) -> float:
    """From the first tenth to the last: a difference of medians."""
    tenth = max(POINTS_MIN // 4, len(values) // 10)
    return float(np.median(values[-tenth:]) - np.median(values[:tenth]))


def _slope(table: Floats) -> tuple[float, float, float]:
    """Least squares of throughput on the driver, load taken out: the slope, its standard error for
    as many pairs as are independent, and the mean throughput."""
    y, x = _residuals(table, time=False)
    power = float(x @ x)
    if power <= 0.0:
        return 0.0, math.inf, float(table[:, 0].mean())
    slope = float(y @ x) / power
    left = y - slope * x
    count = _independent(left, x)
    error = math.sqrt(float(left @ left) / len(y) / (power / len(y)) / max(1.0, count - 2.0))
    return slope, error, float(table[:, 0].mean())
