"""Judges the cost model on sources that its efficiencies were not fitted to.

Each source class is left out in turn: the efficiencies are fitted to the others, and the rows of
the one left out are predicted. The width of the intervals is learned the same way, one level down:
from how far each of the others is off when it is left out as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.support.measured import Measured, classes
from benchmarks.support.steptime_fit import Predictor, fit
from mileage.costmodel.efficiency import Efficiency
from mileage.costmodel.operators import Array

__all__ = [
    "COVERAGE",
    "SATURATED_RATIO",
    "Judged",
    "fitted_without",
    "judge",
    "spread",
    "within_rows",
]

COVERAGE = 0.8
"""Share of rows that an interval shall cover."""
SATURATED_RATIO = 0.5
"""Where prompts take more than this share of the engine's time, TTFT is that of a queue."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Of one source class, predicted without it. Logarithms of predicted over measured."""

    source_class: str
    tpot: Array
    ttft: Array
    """Of rows that are not saturated."""
    tpot_covered: Array
    ttft_covered: Array


@dataclass(frozen=True, slots=True)
class _Errors:
    tpot: Array
    ttft: Array


def judge(rows: Sequence[Measured], tell: Callable[[str], None]) -> list[Judged]:
    """Every class, left out once."""
    names = list(classes(rows))
    found = []
    for name in names:
        tell(f"fitting without {name}")
        others = [other for other in names if other != name]
        efficiency = fitted_without(rows, name)
        errors = _errors(rows, name, efficiency)
        inner = [_errors(rows, other, fitted_without(rows, name, other)) for other in others]
        found.append(
            Judged(
                source_class=name,
                tpot=errors.tpot,
                ttft=errors.ttft,
                tpot_covered=_covered(errors.tpot, spread([each.tpot for each in inner])),
                ttft_covered=_covered(errors.ttft, spread([each.ttft for each in inner])),
            )
        )
    return found


_FITS: dict[tuple[int, frozenset[str]], Efficiency] = {}


def fitted_without(rows: Sequence[Measured], *names: str) -> Efficiency:
    """The fit without these classes; each set is fitted once."""
    key = (id(rows), frozenset(names))
    if key not in _FITS:
        _FITS[key] = fit([row for row in rows if row.source_class not in names])
    return _FITS[key]


def _errors(rows: Sequence[Measured], name: str, efficiency: Efficiency) -> _Errors:
    predictor = Predictor([row for row in rows if row.source_class == name])
    tpot, ttft = predictor.errors(efficiency)
    saturated = predictor.latencies(efficiency).prefill_share_ratio > SATURATED_RATIO
    ttft = np.where(saturated, np.nan, ttft)
    return _Errors(tpot[np.isfinite(tpot)], ttft[np.isfinite(ttft)])


def spread(errors: Sequence[Array]) -> tuple[float, float]:
    """Quantiles of errors that leave the same share out on both sides; each class weighs alike."""
    errors = [each for each in errors if len(each)]
    values = np.concatenate(errors)
    weights = np.concatenate([np.full(len(each), 1.0 / len(each)) for each in errors])
    order = np.argsort(values)
    passed = (np.cumsum(weights[order]) - weights[order] / 2) / weights.sum()
    low, high = np.interp([(1 - COVERAGE) / 2, (1 + COVERAGE) / 2], passed, values[order])
    return float(low), float(high)


def _covered(errors: Array, interval: tuple[float, float]) -> Array:
    low, high = interval
    covered: Array = ((errors >= low) & (errors <= high)).astype(np.float64)
    return covered


def within_rows(rows: Sequence[Measured]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Multiples of predicted TPOT and TTFT that four of five measured ones are within.

    From every class, predicted without it: what to expect of a source that is not known.
    """
    errors = [_errors(rows, name, fitted_without(rows, name)) for name in classes(rows)]
    return _multiples([e.tpot for e in errors]), _multiples([e.ttft for e in errors])


def _multiples(errors: Sequence[Array]) -> tuple[float, float]:
    low, high = spread(errors)
    return float(np.exp(-high)), float(np.exp(-low))
