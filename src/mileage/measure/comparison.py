"""Comparison of one metric between two arms, block by block, with its confidence interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from mileage.measure.distributions import normal_quantile, t_critical, t_p
from mileage.measure.record_latency import Floats

__all__ = ["BLOCKS_MIN", "Comparison", "MetricVerdict", "compare", "p_of_mean"]

MetricVerdict = Literal["better", "worse", "no_difference", "invalid"]

BLOCKS_MIN = 4
"""Fewer blocks tell nothing about how much blocks differ among themselves."""


_SHOWN_MAX = 10.0
"""Few blocks can have an interval without a useful end: a larger change is told as this one."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of arm b against arm a. What could not be told is None.

    The estimate is the geometric mean, over blocks, of b's figure / a's figure in the block, and
    its interval is Student's t over the blocks' log ratios. A metric that is 0 in some block has
    no log ratio: there the estimate is 1 + mean difference / mean of a, with t over differences.
    """

    metric: str
    better: Literal["lower", "higher"] | None
    a: float | None
    """Mean over blocks of the figure of arm a in each block."""
    b: float | None
    ratio: float | None
    ci95: tuple[float, float] | None
    """The interval of the ratio that the verdict is read from: it holds for all looks at the run
    and all metrics that decide together, with a chance of 1 - alpha of the plan."""
    ci95_alone: tuple[float, float] | None
    """The plain 95 % interval, of this metric alone and one look: narrower, and no verdict."""
    p_value: float | None
    """Two-sided, of this metric alone and one look."""
    level: float
    """The level that `p_value` has to be below for a difference to be reported."""
    blocks: int
    """Blocks in which both arms had the figure."""
    blocks_left_out: int
    detectable_ratio: float | None
    """The smallest change either way, as a share, that this run would have seen in 4 runs of 5."""
    verdict: MetricVerdict
    text: str


class _Interval(NamedTuple):
    ratio: float
    low: float
    high: float


class _Centre(NamedTuple):
    mean: float
    error: float
    """The standard error of the mean."""


def compare(
    metric: str,
    a: Sequence[float | None],
    b: Sequence[float | None],
    *,
    better: Literal["lower", "higher"] | None,
    level: float = 0.05,
) -> Comparison:
    """Compare figures `a` and `b` of the arms, one a block, in the blocks' order.

    `level` is the two-sided level of the test and of `ci95`: the plan's `alpha_at`. Raises
    ValueError for arms of unequal length.
    """
    pairs = [
        (x, y)
        for x, y in zip(a, b, strict=True)
        if x is not None and y is not None and math.isfinite(x) and math.isfinite(y)
    ]
    base = Comparison(
        metric=metric,
        better=better,
        a=_mean([x for x, _ in pairs]),
        b=_mean([y for _, y in pairs]),
        ratio=None,
        ci95=None,
        ci95_alone=None,
        p_value=None,
        level=level,
        blocks=len(pairs),
        blocks_left_out=len(a) - len(pairs),
        detectable_ratio=None,
        verdict="invalid",
        text="",
    )
    if len(pairs) < BLOCKS_MIN:
        return _invalid(base, f"{len(pairs)} blocks have it in both arms, {BLOCKS_MIN} are needed")
    x, y = np.array(pairs, dtype=np.float64).T
    if (x > 0).all() and (y > 0).all():
        changes, scale = np.log(y / x), None
    elif x.mean() > 0:
        changes, scale = y - x, float(x.mean())
    elif not x.any() and not y.any():
        return msgspec.structs.replace(
            base, verdict="no_difference", text=f"{metric}: 0 in both arms, in every block."
        )
    else:
        return _invalid(base, "it is 0 in arm a: there is no ratio")
    return _judged(base, changes, scale)


def p_of_mean(values: Floats) -> float:
    """Two-sided p-value of Student's t that `values` (2 or more) have mean 0."""
    return _p_value(_centre(values), len(values))


def _centre(values: Floats) -> _Centre:
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    return _Centre(float(values.mean()), error)


def _p_value(centre: _Centre, n: int) -> float:
    mean, error = centre
    # Values that are equal but for rounding have no spread: they are what they are.
    if error <= 1e-12 * abs(mean) or error == 0.0:
        return 0.0 if abs(mean) > 1e-12 else 1.0
    return t_p(mean / error, n - 1)


def _judged(base: Comparison, changes: Floats, scale: float | None) -> Comparison:
    n, centre = len(changes), _centre(changes)
    critical = t_critical(base.level, n - 1)
    p_value = _p_value(centre, n)
    judged = _interval(centre, scale, critical)
    alone = _interval(centre, scale, t_critical(0.05, n - 1))
    differs = p_value < base.level
    verdict: MetricVerdict = "no_difference"
    if differs and base.better is not None:
        verdict = "better" if (judged.ratio < 1.0) == (base.better == "lower") else "worse"
    # The change that crosses the level with a chance of 80 %, by the normal approximation.
    detectable = (critical + normal_quantile(0.8)) * centre.error
    found = msgspec.structs.replace(
        base,
        ratio=judged.ratio,
        ci95=(judged.low, judged.high),
        ci95_alone=(alone.low, alone.high),
        p_value=p_value,
        detectable_ratio=_ratio(detectable, scale) - 1.0,
        verdict=verdict,
    )
    return msgspec.structs.replace(found, text=_sentence(found, differs))


def _interval(centre: _Centre, scale: float | None, critical: float) -> _Interval:
    middle, half = centre.mean, critical * centre.error
    return _Interval(*(_ratio(v, scale) for v in (middle, middle - half, middle + half)))


def _ratio(change: float, scale: float | None) -> float:
    return math.exp(min(change, 700.0)) if scale is None else 1.0 + change / scale


def _sentence(c: Comparison, differs: bool) -> str:
    assert c.ratio is not None
    assert c.ci95 is not None
    span = f"{_percent(c.ci95[0] - 1.0)} to {_percent(c.ci95[1] - 1.0)}"
    if not differs:
        share = c.detectable_ratio or 0.0
        seen = f"{100.0 * share:.2g} %" if share < _SHOWN_MAX else _percent(share)
        return (
            f"{c.metric}: no difference seen at this power ({_percent(c.ratio - 1.0)}, {span}); "
            f"a change of {seen} would have been seen in 4 runs of 5."
        )
    word = {"better": "better", "worse": "worse"}.get(c.verdict, "different")
    return f"{c.metric}: b is {word}, {_percent(c.ratio - 1.0)} ({span})."


def _percent(share: float) -> str:
    if share >= _SHOWN_MAX:
        return f"more than +{100.0 * _SHOWN_MAX:.0f} %"
    return f"{100.0 * share:+.2f} %"


def _invalid(base: Comparison, why: str) -> Comparison:
    return msgspec.structs.replace(base, text=f"{base.metric}: not compared: {why}.")


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
