"""Plane: recursive least squares of one non-negative plane through the samples of an engine."""

from __future__ import annotations

from itertools import combinations

__all__ = ["DIMENSIONS", "Features", "Plane"]

Features = tuple[float, float, float, float]
"""1, running requests, tokens of their context, tokens being prefilled."""

DIMENSIONS = 4
_AXES = range(DIMENSIONS)
_SUBSETS = [s for size in (4, 3, 2, 1) for s in combinations(_AXES, size)]
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
        x = [f * factor for f in features]
        y = step_s * factor
        matrix, moment, powers = self._information, self._moment, self._powers
        known = [sum(row[j] * x[j] for j in _AXES) for row in matrix]
        norm = sum(known[i] * x[i] for i in _AXES)
        if norm > _TINY:
            # The part of what is known that lies along x, and what it says there.
            fade = weight * (1.0 - self._keep) / norm
            share = fade * sum(moment[i] * x[i] for i in _AXES)
        else:
            fade = share = 0.0
        for i in _AXES:
            moment[i] += weight * x[i] * y - share * known[i]
            row, faded, gained = matrix[i], fade * known[i], weight * x[i]
            for j in range(i, DIMENSIONS):
                row[j] += gained * x[j] - faded * known[j]
                matrix[j][i] = row[j]
            power = x[i] * x[i]
            powers[i] += weight * (1.0 - self._keep) * (power - powers[i]) if powers[i] else power

    def solve(self) -> None:
        """Set `coefficients` to the best ones, given that none may be negative.

        Exact: where the plain solution has a negative coefficient, every set of coefficients that
        may differ from 0 is tried (there are 15), and the best one is taken.
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
        """Of all solutions with some coefficients 0 and the others not negative: the best one."""
        best, best_gain = [0.0] * len(axes), 0.0
        for subset in _SUBSETS:
            if not set(subset) <= set(axes):
                continue
            found = self._solution(subset)
            if found is None or min(found) < 0.0:
                continue
            gain = sum(self._moment[i] * v for i, v in zip(subset, found, strict=True))
            if gain > best_gain:
                best_gain = gain
                best = [found[subset.index(i)] if i in subset else 0.0 for i in axes]
        return best

    def _solution(self, axes: tuple[int, ...]) -> list[float] | None:
        """The unconstrained solution with all other coefficients 0 (Cholesky); None: singular."""
        matrix, count = self._information, len(axes)
        # Columns scaled to a unit diagonal: seconds per token and per request differ by 1e5.
        diagonal = [matrix[i][i] + self._ridge * self._powers[i] for i in axes]
        scale = [d**-0.5 for d in diagonal]
        lower = [[0.0] * count for _ in range(count)]
        half = [0.0] * count
        for i in range(count):
            for j in range(i + 1):
                entry = 1.0 if i == j else matrix[axes[i]][axes[j]] * scale[i] * scale[j]
                entry -= sum(lower[i][k] * lower[j][k] for k in range(j))
                if i == j:
                    if entry < 1e-12:
                        return None
                    lower[i][i] = entry**0.5
                else:
                    lower[i][j] = entry / lower[j][j]
            right = self._moment[axes[i]] * scale[i]
            half[i] = (right - sum(lower[i][k] * half[k] for k in range(i))) / lower[i][i]
        found = [0.0] * count
        for i in reversed(range(count)):
            rest = sum(lower[k][i] * found[k] for k in range(i + 1, count))
            found[i] = (half[i] - rest) / lower[i][i]
        return [f * s for f, s in zip(found, scale, strict=True)]
