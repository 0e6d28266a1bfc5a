"""Plane: recursive least squares of one non-negative plane through the samples of an engine."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

__all__ = ["DIMENSIONS", "Features", "Plane"]

Features = tuple[float, float, float, float]
"""1, running requests, tokens of their context, tokens being prefilled."""

DIMENSIONS = 4
_AXES = range(DIMENSIONS)
_UPWARD = [range(i, DIMENSIONS) for i in _AXES]
_SUBSETS = [(s, frozenset(s)) for size in (4, 3, 2, 1) for s in combinations(_AXES, size)]
_TINY = 1e-30


class Plane:
    """Coefficients >= 0 that minimise the squared relative error, recent samples counting more.

    Kept is what the samples say in all (the information matrix and its right-hand side); a new one
    takes the place of older ones only along its own direction (directional forgetting: Cao and
    Schwartz, "A directional forgetting algorithm based on the decomposition of the information
    matrix", Automatica 36, 2000). So an engine that sees the same load for hours forgets nothing
    about other loads, and no direction's variance grows without bound. What no sample has
    distinguished (at a constant load, say, the constant part from the part per request) is settled
    by a weak ridge, in proportion to each coefficient's own share: contributions come out alike.
    """

    __slots__ = ("_information", "_keep", "_moment", "_powers", "_ridge", "coefficients")

    def __init__(self, *, memory_samples: float, ridge: float) -> None:
        """`memory_samples` in one direction; `ridge` in samples' worth of information."""
        self._keep = 1.0 - 1.0 / memory_samples
        self._ridge = ridge
        self._information = [[0.0] * DIMENSIONS for _ in _AXES]
        self._moment = [0.0] * DIMENSIONS
        self._powers = [0.0] * DIMENSIONS
        self.coefficients: Features = (0.0, 0.0, 0.0, 0.0)
        """Of the last `solve`, in seconds per unit of the features."""

    def learn(self, features: Features, step_s: float, scale_s: float, weight: float) -> None:
        """Take a sample in, with its error counted relative to `scale_s`; `weight` in 0..1."""
        factor = 1.0 / scale_s
        x = x0, x1, x2, x3 = [feature * factor for feature in features]
        y = step_s * factor
        matrix, moment, powers = self._information, self._moment, self._powers
        # Written out for four dimensions: a fit anew takes in thousands of samples at once.
        known = k0, k1, k2, k3 = [a * x0 + b * x1 + c * x2 + d * x3 for a, b, c, d in matrix]
        norm = k0 * x0 + k1 * x1 + k2 * x2 + k3 * x3
        gain = weight * (1.0 - self._keep)
        if norm > _TINY:
            # The part of what is known that lies along x, and what it says there.
            fade = gain / norm
            m0, m1, m2, m3 = moment
            share = fade * (m0 * x0 + m1 * x1 + m2 * x2 + m3 * x3)
        else:
            fade = share = 0.0
        for i in _AXES:
            value, along = x[i], known[i]
            gained, faded, row = weight * value, fade * along, matrix[i]
            moment[i] += gained * y - share * along
            for j in _UPWARD[i]:
                row[j] = matrix[j][i] = row[j] + (gained * x[j] - faded * known[j])
            power = value * value
            powers[i] += gain * (power - powers[i]) if powers[i] else power

    def solve(self) -> None:
        """Set `coefficients` to the best ones, given that none may be negative.

        Exact: where the plain solution has a negative coefficient, every set of coefficients that
        may differ from 0 is considered (there are 15), and the best one is taken.
        """
        powers = self._powers
        axes = [i for i in _AXES if powers[i] > _TINY and self._information[i][i] > _TINY]
        found = self._solution(tuple(axes)) if axes else None
        if found is None or min(found) < 0.0:
            found = self._best(axes)
        values = [0.0] * DIMENSIONS
        for axis, value in zip(axes, found, strict=True):
            values[axis] = value
        self.coefficients = (values[0], values[1], values[2], values[3])

    def predict(self, features: Features) -> float:
        """Seconds, by the last solution."""
        a, b = self.coefficients, features
        return a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3]

    def _best(self, axes: list[int]) -> list[float]:
        """Of all solutions with some coefficients 0 and the others not negative: the best one.

        A part of a set never gains more than the whole: what is part of one that gained no more
        than the best so far is left out.
        """
        best, best_gain = [0.0] * len(axes), 0.0
        gains: list[tuple[frozenset[int], float]] = []
        for subset, members in _SUBSETS:
            if not members.issubset(axes):
                continue
            if any(gain <= best_gain and members < whole for whole, gain in gains):
                continue
            found = self._solution(subset)
            if found is None:
                continue
            gain = _dot([self._moment[i] for i in subset], found)
            gains.append((members, gain))
            if gain > best_gain and min(found) >= 0.0:
                best_gain = gain
                best = [found[subset.index(i)] if i in members else 0.0 for i in axes]
        return best

    def _solution(self, axes: tuple[int, ...]) -> list[float] | None:
        """The unconstrained solution with all other coefficients 0 (Cholesky); None: singular."""
        matrix, count = self._information, len(axes)
        # Columns scaled to a unit diagonal: seconds per token and per request differ by 1e5.
        diagonal = [matrix[i][i] + self._ridge * self._powers[i] for i in axes]
        scale = [d**-0.5 for d in diagonal]
        lower: list[list[float]] = []
        half: list[float] = []
        for i, axis in enumerate(axes):
            row: list[float] = []
            for j, other in enumerate(lower):
                entry = matrix[axis][axes[j]] * scale[i] * scale[j]
                row.append((entry - _dot(row, other)) / other[j])
            rest = 1.0 - _dot(row, row)
            if rest < 1e-12:
                return None
            pivot = rest**0.5
            right = self._moment[axis] * scale[i]
            half.append((right - _dot(row, half)) / pivot)
            row.append(pivot)
            lower.append(row)
        found = [0.0] * count
        for i in reversed(range(count)):
            rest = 0.0
            for k in range(i + 1, count):
                rest += lower[k][i] * found[k]
            found[i] = (half[i] - rest) / lower[i][i]
        return [f * s for f, s in zip(found, scale, strict=True)]


def _dot(one: Iterable[float], other: Iterable[float]) -> float:
    """Of as many as the shorter one has."""
    total = 0.0
    for a, b in zip(one, other, strict=False):
        total += a * b
    return total
