"""Pareto front: the points that no other point beats in everything, and three named picks of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from mileage.measure.record_latency import Bools, Floats

__all__ = ["Objective", "Picks", "non_dominated", "picks"]

_NOISE_RATIO_MAX = 0.1
"""Of the best value: a point that was measured badly is not taken for one that is as good."""


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that is to be as low or as high as can be."""

    name: str
    sense: Literal["min", "max"]


class Picks(msgspec.Struct, frozen=True, kw_only=True):
    """Indices of the points that stand for three ways to run; None where there is no front."""

    low_latency: int | None
    throughput: int | None
    balanced: int | None


def non_dominated(
    points: Sequence[Mapping[str, float | None]], objectives: Sequence[Objective]
) -> list[bool]:
    """Which points are on the front, in their order.

    A point is off it where another is at least as good in every objective and better in one. Equal
    points are on it together. One that lacks an objective (None, absent or not finite) is never on
    it and beats nobody: nothing can be said of it. Raises ValueError without objectives.
    """
    values = _matrix(points, objectives)
    front = [False] * len(values)
    whole = [bool(np.isfinite(own).all()) for own in values]
    found = np.empty((0, len(objectives)))
    # In lexical order nothing that comes later can beat what came before, so each point has to be
    # held only against the front so far.
    for index in np.lexsort(values.T[::-1]).tolist():
        if not whole[index]:
            continue
        own = values[index]
        beaten = (found <= own).all(axis=1) & (found < own).any(axis=1)
        if not beaten.any():
            front[index] = True
            found = np.vstack((found, own))
    return front


def picks(
    points: Sequence[Mapping[str, float | None]],
    objectives: Sequence[Objective],
    *,
    latency: str,
    throughput: str,
    noise: Sequence[float | None] | None = None,
) -> Picks:
    """Three points of the front.

    low_latency: the best in that objective; of equals the one that is nearest to the utopia point.
    throughput: of the points that have as much as the best one but for noise, the nearest to the
    utopia point of the other objectives: what is gained within the noise is worth no latency.
    `noise` has half of each point's interval of the throughput, None where it is not known; two
    points differ by noise where they differ by no more than the root of the sum of the squares of
    their halves, and by no more than a tenth of the best. balanced: nearest to the utopia point; of
    equals the first.

    The utopia point has the best value of each objective on the front. Distances to it are
    Euclidean, with each objective scaled from its best (0) to its worst (1) on the front. Raises
    ValueError for a name that is no objective.
    """
    names = [objective.name for objective in objectives]
    for name in (latency, throughput):
        if name not in names:
            raise ValueError(f"{name!r} is no objective: {', '.join(names)}")
    front = [index for index, on in enumerate(non_dominated(points, objectives)) if on]
    if not front:
        return Picks(low_latency=None, throughput=None, balanced=None)
    values = _matrix(points, objectives)[front]
    best, worst = values.min(axis=0), values.max(axis=0)
    scale = np.where(worst > best, worst - best, 1.0)
    squares = ((values - best) / scale) ** 2
    far = np.sqrt(squares.sum(axis=1))
    rate = names.index(throughput)
    halves = [0.0 if noise is None else noise[index] or 0.0 for index in front]
    near = _near_best(values[:, rate], np.array(halves))
    rest = np.delete(squares, rate, axis=1).sum(axis=1)
    order = np.lexsort((values[:, rate], rest, ~near))
    return Picks(
        low_latency=front[int(np.lexsort((far, values[:, names.index(latency)]))[0])],
        throughput=front[int(order[0])],
        balanced=front[int(np.argmin(far))],
    )


def _near_best(column: Floats, halves: Floats) -> Bools:
    """Which of the values, the lowest of which is the best, are the best one but for noise."""
    best = int(np.argmin(column))
    slack = np.minimum(np.hypot(halves, halves[best]), _NOISE_RATIO_MAX * abs(column[best]))
    return np.asarray(column - column[best] <= slack, dtype=np.bool_)


def _matrix(
    points: Sequence[Mapping[str, float | None]], objectives: Sequence[Objective]
) -> Floats:
    """Shape (points, objectives), all to be as low as can be; NaN is missing."""
    if not objectives:
        raise ValueError("a front needs an objective")
    rows = [[_value(point, objective) for objective in objectives] for point in points]
    return np.array(rows, dtype=np.float64).reshape(len(points), len(objectives))


def _value(point: Mapping[str, float | None], objective: Objective) -> float:
    value = point.get(objective.name)
    if value is None:
        return math.nan
    return value if objective.sense == "min" else -value
