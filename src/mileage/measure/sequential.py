"""SequentialPlan: when an A/B run is looked at, and what each look may spend of the error."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import msgspec
import numpy as np

from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError
from mileage.measure.distributions import normal_cdf, normal_quantile
from mileage.measure.record_latency import Floats

__all__ = ["SequentialPlan", "boundaries", "spent"]

Spending = Literal["obrien_fleming", "pocock"]

_GRID = 801
"""Points of the grid over which the density is integrated; boundaries are good to 4 digits."""


class SequentialPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long an A/B run may last, and when it may stop before.

    Raises ConfigError for a plan that cannot be followed.
    """

    blocks_max: int = 24
    """Blocks after which the run ends in any case."""
    blocks_first: int = 8
    """Blocks before the first look."""
    blocks_between: int = 4
    """Blocks between two looks."""
    alpha: float = 0.05
    """Chance that a run of two equal arms reports a difference in any of its metrics that decide,
    over all its looks together."""
    spending: Spending = "obrien_fleming"
    """How the error is spent: obrien_fleming keeps nearly all of it for the end; pocock spends it
    evenly, stops sooner on large differences and sees small ones less well."""
    margin_ratio: float = 0.05
    """The smallest change that matters: the run may stop when it is known that none is larger."""

    def __post_init__(self) -> None:
        require_range("plan.blocks_first", self.blocks_first, 4, 100_000)
        require_range("plan.blocks_between", self.blocks_between, 1, 100_000)
        require_range("plan.alpha", self.alpha, 1e-4, 0.5)
        require_range("plan.margin_ratio", self.margin_ratio, 1e-4, 1.0)
        if not self.blocks_first <= self.blocks_max <= 100_000:
            expected = f"blocks_first ({self.blocks_first})..100000"
            raise ConfigError("plan.blocks_max", self.blocks_max, expected)

    def looks(self) -> tuple[int, ...]:
        """Blocks done at each look, the last at `blocks_max`."""
        early = range(self.blocks_first, self.blocks_max, self.blocks_between)
        return (*early, self.blocks_max)

    def is_look(self, blocks: int) -> bool:
        """Whether the run is looked at after so many blocks."""
        return blocks >= self.blocks_max or blocks in self.looks()

    def alpha_at(self, blocks: int, *, tests: int = 1) -> float:
        """The two-sided level of a look after `blocks` blocks, for each of `tests` metrics.

        A look that was not planned, as where a run was broken off, is added to those before it: it
        spends what the share of the run that is done allows.
        """
        done = tuple(look for look in self.looks() if look < blocks)
        fractions = tuple(min(1.0, look / self.blocks_max) for look in (*done, blocks))
        z = boundaries(fractions, self.alpha / tests, self.spending)[-1]
        return 2.0 * normal_cdf(-z)


def spent(fraction: float, alpha: float, spending: Spending) -> float:
    """Error spent, of a two-sided `alpha`, when `fraction` (0..1) of the information is in.

    Lan and DeMets (1983): obrien_fleming 4 (1 - Phi(z(alpha/4) / sqrt(t))), pocock
    alpha ln(1 + (e - 1) t).
    """
    if fraction <= 0.0:
        return 0.0
    if fraction >= 1.0:
        return alpha
    if spending == "pocock":
        return alpha * math.log1p((math.e - 1.0) * fraction)
    return 4.0 * normal_cdf(-normal_quantile(1.0 - alpha / 4.0) / math.sqrt(fraction))


@lru_cache(maxsize=256)
def boundaries(fractions: tuple[float, ...], alpha: float, spending: Spending) -> tuple[float, ...]:
    """The |z| that ends the run at each look, at these increasing shares of the information.

    By the recursion of Armitage, McPherson and Rowe (1969) over the density of the partial sum on
    the paths that have not ended.
    """
    found: list[float] = []
    density = np.array([1.0])
    grid, weights = np.array([0.0]), np.array([1.0])
    before, crossed = 0.0, 0.0
    for fraction in fractions:
        step = math.sqrt(fraction - before)
        budget = max(spent(fraction, alpha, spending) - crossed, 0.0)
        mass = weights * density
        low, high = 0.0, 12.0 * math.sqrt(fraction)
        for _ in range(50):
            middle = (low + high) / 2.0
            low, high = (
                (middle, high) if _crossing(grid, mass, middle, step) > budget else (low, middle)
            )
        found.append(high / math.sqrt(fraction))
        crossed += _crossing(grid, mass, high, step)
        points = np.linspace(-high, high, _GRID)
        kernel = np.exp(-0.5 * ((points[:, None] - grid[None, :]) / step) ** 2)
        density = kernel @ mass / (step * math.sqrt(2.0 * math.pi))
        grid, before = points, fraction
        weights = _simpson(points)
    return tuple(found)


def _crossing(grid: Floats, mass: Floats, bound: float, step: float) -> float:
    """The chance to go from the partial sums of `grid` beyond +-`bound` in one step."""
    up = np.array([normal_cdf((s - bound) / step) for s in grid.tolist()])
    down = np.array([normal_cdf((-s - bound) / step) for s in grid.tolist()])
    return float(mass @ (up + down))


def _simpson(points: Floats) -> Floats:
    weights = np.ones(len(points))
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    weights *= (points[1] - points[0]) / 3.0
    return weights
