"""Scale-out: efficiency of each number of replicas, the knee, and the universal scalability law."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Literal

import msgspec
import numpy as np

from mileage.measure.distributions import normal_quantile
from mileage.measure.record_latency import Floats

__all__ = ["ScalePoint", "ScaledPoint", "Scaling", "UniversalLaw", "fit_law", "scaling"]

ScaleKind = Literal["base", "superlinear", "linear", "sublinear"]


class ScalePoint(msgspec.Struct, frozen=True, kw_only=True):
    """What so many replicas did together."""

    replicas: int
    throughput: float
    """Of all replicas, in any unit; above 0."""
    throughput_sd: float | None = None
    """Standard error of `throughput`, in its unit; None: not known."""
    latency_s: float | None = None


class ScaledPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A point as seen from the first one."""

    replicas: int
    throughput: float
    latency_s: float | None
    efficiency_ratio: float
    """Throughput per replica / that of the fewest replicas. 1: linear."""
    marginal_ratio: float | None
    """What a replica added since the point before brings / one of the first; None at the first."""
    kind: ScaleKind
    """super- or sublinear: beyond noise, at a level of 5 % for all points together."""
    latency_ratio: float | None
    """Latency / that of the fewest replicas."""


class UniversalLaw(msgspec.Struct, frozen=True, kw_only=True):
    """X(n) = g n / (1 + contention (n - 1) + coherency n (n - 1)), of Gunther (1993).

    contention: the share of work that only one replica does at a time, so throughput levels off at
    g / contention; coherency: what each pair of replicas costs, so throughput falls at the end.
    """

    per_replica: float
    """g: throughput of one replica alone."""
    contention_ratio: float
    coherency_ratio: float
    error_ratio: float
    """Root mean square of the relative errors at the points fitted."""

    def throughput(self, replicas: float) -> float:
        """What `replicas` (0 or more) do together."""
        n = replicas
        lost = self.contention_ratio * (n - 1.0) + self.coherency_ratio * n * (n - 1.0)
        return self.per_replica * n / (1.0 + lost)

    def replicas_best(self) -> float | None:
        """The number with the highest throughput, at least 1; None: it grows without end."""
        if self.coherency_ratio <= 0.0:
            return None
        return math.sqrt(max(1.0, (1.0 - self.contention_ratio) / self.coherency_ratio))

    def throughput_max(self) -> float | None:
        """The highest throughput of any whole number of replicas, or the limit; None: no limit."""
        best = self.replicas_best()
        if best is not None:
            return max(self.throughput(math.floor(best)), self.throughput(math.ceil(best)))
        return self.per_replica / self.contention_ratio if self.contention_ratio > 0.0 else None


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """How throughput grew with replicas."""

    points: tuple[ScaledPoint, ...]
    """By number of replicas."""
    knee: int | None
    """The last number measured before a replica added brings less than half of one of the first;
    None: the knee was not reached."""
    law: UniversalLaw | None
    """None with less than three numbers of replicas: the law has three unknowns."""
    superlinear: tuple[int, ...]
    """Numbers of replicas that did better than linear beyond noise: what they did not share."""
    sublinear: tuple[int, ...]


def scaling(points: Sequence[ScalePoint]) -> Scaling:
    """Judge a scale-out by its points, in any order.

    Without the standard errors of a point and of the first, a change of less than 3 % counts as
    noise. Raises ValueError without points, for two of one number of replicas, and for a number,
    throughput or error that is out of range.
    """
    ordered = sorted(points, key=lambda point: point.replicas)
    numbers = [point.replicas for point in ordered]
    if not ordered or len(set(numbers)) < len(numbers) or numbers[0] < 1:
        raise ValueError(f"points need unlike numbers of replicas of 1 or more, got {numbers}")
    for point in ordered:
        if not 0.0 < point.throughput < math.inf or (point.throughput_sd or 0.0) < 0.0:
            raise ValueError(f"throughput must be above 0, and its error at least 0: {point!r}")
    level = 0.05 / max(1, len(ordered) - 1)
    steps = [None, *(_marginal(ordered[0], *pair) for pair in pairwise(ordered))]
    scaled = tuple(
        _scaled(point, ordered[0], step, level) for point, step in zip(ordered, steps, strict=True)
    )
    return Scaling(
        points=scaled,
        knee=_knee(scaled),
        law=fit_law(ordered) if len(ordered) >= 3 else None,
        superlinear=tuple(p.replicas for p in scaled if p.kind == "superlinear"),
        sublinear=tuple(p.replicas for p in scaled if p.kind == "sublinear"),
    )


def fit_law(points: Sequence[ScalePoint]) -> UniversalLaw:
    """The law nearest to the points, with no coefficient below 0.

    n / X(n) is linear in 1 / g, contention / g and coherency / g; they are fitted by least squares
    of the relative errors of n / X(n), weighted by the points' own relative errors where all have
    one. With three unknowns the best non-negative solution is found among all 7 choices of those
    that are not 0, so it is exact. Raises ValueError with less than three points.
    """
    if len(points) < 3:
        raise ValueError(f"the law has three unknowns, got {len(points)} points")
    n = np.array([point.replicas for point in points], dtype=np.float64)
    x = np.array([point.throughput for point in points], dtype=np.float64)
    weights = _weights(points) * x / n
    design = np.column_stack((np.ones(len(n)), n - 1.0, n * (n - 1.0))) * weights[:, None]
    target = n / x * weights
    inverse, contention, coherency = _non_negative(design, target).tolist()
    law = UniversalLaw(
        per_replica=1.0 / inverse,
        contention_ratio=contention / inverse,
        coherency_ratio=coherency / inverse,
        error_ratio=0.0,
    )
    errors = np.array([law.throughput(v) for v in n.tolist()]) / x - 1.0
    return msgspec.structs.replace(law, error_ratio=float(np.sqrt((errors**2).mean())))


def _weights(points: Sequence[ScalePoint]) -> Floats:
    errors = np.array([(p.throughput_sd or 0.0) / p.throughput for p in points])
    if not (errors > 0.0).all():
        return np.ones(len(points))
    weights: Floats = errors.min() / errors
    return weights


def _non_negative(design: Floats, target: Floats) -> Floats:
    """Least squares with a first coefficient above 0 and the others at least 0."""
    best, least = np.array([1.0, 0.0, 0.0]), math.inf
    for size in range(1, design.shape[1] + 1):
        for chosen in combinations(range(design.shape[1]), size):
            part = design[:, chosen]
            solution = np.zeros(design.shape[1])
            solution[list(chosen)] = np.linalg.lstsq(part, target, rcond=None)[0]
            rest = target - design @ solution
            missed = float(rest @ rest)
            if solution[0] > 0.0 and (solution >= 0.0).all() and missed < least:
                best, least = solution, missed
    return best


def _marginal(first: ScalePoint, before: ScalePoint, point: ScalePoint) -> float:
    gained = (point.throughput - before.throughput) / (point.replicas - before.replicas)
    return gained / (first.throughput / first.replicas)


def _scaled(
    point: ScalePoint, first: ScalePoint, marginal: float | None, level: float
) -> ScaledPoint:
    efficiency = (point.throughput / point.replicas) / (first.throughput / first.replicas)
    latency = None
    if point.latency_s is not None and first.latency_s:
        latency = point.latency_s / first.latency_s
    return ScaledPoint(
        replicas=point.replicas,
        throughput=point.throughput,
        latency_s=point.latency_s,
        efficiency_ratio=efficiency,
        marginal_ratio=marginal,
        kind="base" if point is first else _kind(point, first, efficiency, level),
        latency_ratio=latency,
    )


def _kind(point: ScalePoint, first: ScalePoint, efficiency: float, level: float) -> ScaleKind:
    noise = 0.03
    if point.throughput_sd is not None and first.throughput_sd is not None:
        error = math.hypot(
            point.throughput_sd / point.throughput, first.throughput_sd / first.throughput
        )
        noise = normal_quantile(1.0 - level / 2.0) * error
    change = math.log(efficiency)
    if abs(change) <= max(noise, 1e-9):
        return "linear"
    return "superlinear" if change > 0.0 else "sublinear"


def _knee(points: Sequence[ScaledPoint]) -> int | None:
    for before, point in pairwise(points):
        if point.marginal_ratio is not None and point.marginal_ratio < 0.5:
            return before.replicas
    return None
