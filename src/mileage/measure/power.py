"""Power: how likely an A/B run sees a difference, and how many blocks that takes."""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple

import numpy as np

from mileage.measure.distributions import normal_cdf, t_critical
from mileage.measure.sequential import SequentialPlan

__all__ = ["PlanPower", "block_sd", "blocks_needed", "plan_power", "power"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(96)


def power(effect_ratio: float, blocks: int, sd: float, *, alpha: float = 0.05) -> float:
    """The chance that a run of `blocks` (2 or more), looked at once, reports a difference.

    `effect_ratio` is the true b / a (1.05: 5 % more), `sd` the standard deviation over blocks of
    the log ratio (`block_sd`). Exact for normal log ratios: the noncentral t distribution, as the
    mean over the chi distribution of the sample's own standard deviation. Raises ValueError for an
    effect or `sd` that is not above 0.
    """
    if not (effect_ratio > 0.0 and sd > 0.0 and blocks >= 2):
        raise ValueError(f"got an effect of {effect_ratio!r}, sd {sd!r} and {blocks!r} blocks")
    df = blocks - 1
    shift = abs(math.log(effect_ratio)) * math.sqrt(blocks) / sd
    critical = t_critical(alpha, df)
    centre, half = 1.0, 9.0 / math.sqrt(2.0 * df)
    low, high = max(1e-9, centre - half), centre + half
    total = mass = 0.0
    for node, weight in zip(_NODES.tolist(), _WEIGHTS.tolist(), strict=True):
        s = low + (high - low) * (node + 1.0) / 2.0
        density = math.exp(df * (math.log(s) - (s * s - 1.0) / 2.0)) / s
        seen = normal_cdf(shift - critical * s) + normal_cdf(-shift - critical * s)
        mass += weight * density
        total += weight * density * seen
    return min(1.0, total / mass)


def blocks_needed(
    effect_ratio: float,
    sd: float,
    *,
    power_min: float = 0.8,
    alpha: float = 0.05,
    blocks_most: int = 100_000,
) -> int | None:
    """The fewest blocks whose `power` is at least `power_min`; None if `blocks_most` are too few.

    Raises ValueError as `power` does, and for an effect of 1, which no number of blocks shows.
    """
    if effect_ratio == 1.0:
        raise ValueError("an effect of 1 is no difference")
    low, high = 1, 2
    while power(effect_ratio, high, sd, alpha=alpha) < power_min:
        if high >= blocks_most:
            return None
        low, high = high, min(2 * high, blocks_most)
    while high - low > 1:
        middle = (low + high) // 2
        enough = power(effect_ratio, middle, sd, alpha=alpha) >= power_min
        low, high = (low, middle) if enough else (middle, high)
    return high


def block_sd(interval: tuple[float, float], blocks: int, *, level: float = 0.05) -> float:
    """The standard deviation over blocks that an interval of a ratio at this level came from.

    It turns a run's own interval (`Comparison.ci95_alone`) into the `sd` of a run to be planned.
    """
    half = math.log(interval[1] / interval[0]) / 2.0
    return half * math.sqrt(blocks) / t_critical(level, blocks - 1)


class PlanPower(NamedTuple):
    """What a plan with several looks does, by simulation of the plan itself."""

    power: float
    error: float
    """Standard error of `power` by the number of simulated runs."""
    blocks_mean: float
    """Blocks that such a run takes on average, as it stops at the first look that sees it."""


def plan_power(
    plan: SequentialPlan,
    effect_ratio: float,
    sd: float,
    *,
    random: Random,
    tests: int = 1,
    runs: int = 20_000,
) -> PlanPower:
    """The chance that a run by `plan` reports a difference at any of its looks, and its length.

    For normal log ratios with standard deviation `sd` over blocks. With several looks and an
    unknown variance there is no closed form, so `runs` runs are simulated (0.3 s for 20,000).
    An `effect_ratio` of 1 gives the level that the plan really has.
    """
    generator = np.random.Generator(np.random.PCG64(random.getrandbits(63)))
    changes = generator.normal(math.log(effect_ratio), sd, size=(runs, plan.blocks_max))
    stopped = np.full(runs, plan.blocks_max)
    seen = np.zeros(runs, dtype=np.bool_)
    for look in plan.looks():
        part = changes[:, :look]
        error = part.std(axis=1, ddof=1) / math.sqrt(look)
        critical = t_critical(plan.alpha_at(look, tests=tests), look - 1)
        crossed = (np.abs(part.mean(axis=1)) > critical * error) & ~seen
        stopped[crossed] = look
        seen |= crossed
    share = float(seen.mean())
    return PlanPower(share, math.sqrt(share * (1.0 - share) / runs), float(stopped.mean()))
