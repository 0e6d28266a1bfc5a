"""Zipf: ranks 1..n with probability proportional to rank ** -alpha, exactly, in constant memory."""

from __future__ import annotations

import math
from random import Random

from mileage.core.bounds import require_at_least, require_range

__all__ = ["Zipf"]

_TAYLOR = 1e-8


class Zipf:
    """A finite Zipf distribution; `alpha` 0 is the uniform one. Raises ConfigError.

    Drawn by rejection-inversion (Hoermann and Derflinger, "Rejection-inversion to generate variates
    from monotone discrete distributions", ACM TOMACS 6(3), 1996): no table of n entries, below 1.1
    tries a draw on average, and no truncation.
    """

    __slots__ = ("_alpha", "_area_1", "_area_n", "_near", "count")

    def __init__(self, count: int, alpha: float) -> None:
        require_at_least("count", count, 1)
        require_range("alpha", alpha, 0.0, 10.0)
        self.count, self._alpha = count, alpha
        self._area_1 = self._area(1.5) - 1.0
        self._area_n = self._area(count + 0.5)
        self._near = 2.0 - self._place(self._area(2.5) - self._height(2.0))

    def draw(self, rng: Random) -> int:
        """A rank, 1..count."""
        low, high, near, count = self._area_1, self._area_n, self._near, self.count
        while True:
            area = high + rng.random() * (low - high)
            place = self._place(area)
            rank = min(count, max(1, int(place + 0.5)))
            if rank - place <= near or area >= self._area(rank + 0.5) - self._height(rank):
                return rank

    def probabilities(self) -> list[float]:
        """Of each rank; takes time and memory of their number."""
        heights = [rank**-self._alpha for rank in range(1, self.count + 1)]
        total = math.fsum(heights)
        return [height / total for height in heights]

    def _height(self, x: float) -> float:
        return math.exp(-self._alpha * math.log(x))

    def _area(self, x: float) -> float:
        """The integral of x ** -alpha from 1 to x."""
        log_x = math.log(x)
        scaled = (1.0 - self._alpha) * log_x
        return log_x * (math.expm1(scaled) / scaled if abs(scaled) > _TAYLOR else 1 + scaled / 2)

    def _place(self, area: float) -> float:
        """The inverse of `_area`."""
        scaled = max(-1.0, area * (1.0 - self._alpha))
        if abs(scaled) > _TAYLOR:
            return math.exp(area * math.log1p(scaled) / scaled)
        return math.exp(area * (1 - scaled / 2))
