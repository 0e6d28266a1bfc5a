"""Fits the cost model's efficiencies to measured rows, drawn towards what experience expects.

Residuals are logarithms of predicted over measured TPOT and TTFT. Iteratively reweighted
Gauss-Newton gives their sum of absolute values' minimum, near enough, so that rows that are
something else than they say count little; rows of one set-up share the weight of a few, so that
the largest campaign does not decide alone. Each parameter is drawn to its expected value, the
default of `Efficiency`: few rows move it little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from benchmarks.support.measured import Measured
from mileage.costmodel.closed_loop import ClosedLoop, Latencies, closed_loop
from mileage.costmodel.efficiency import Efficiency
from mileage.costmodel.operators import Array
from mileage.costmodel.rates import Rates, rates
from mileage.costmodel.sizes import Sizes, sizes

__all__ = ["Predictor", "Targets", "fit", "thinned"]

_ROUNDS = 10
_SETUP_ROWS_MAX = 16
"""Rows of one set-up that the fit looks at, evenly spread: more of them tell little more."""
_STEP = 1e-3
_RATIO_SPREAD = 0.2
"""A priori, a share of a peak is known to within so much (standard deviation of its logarithm)."""
_TIME_SPREAD = 0.5
"""The same of fixed costs."""
_ROW_SHARE = 0.3
"""What a row tells, besides, of what it would if all of its error were chance."""
_FIRST_SPREAD = 1.0
"""The same of what a first token takes besides steps, which the client and its network decide."""
_RATIO_MAX = 0.97
_NOISE = 0.12
"""Residuals up to about this much are taken as usual."""
_TTFT_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class Targets:
    """Logarithms of what was measured; nan where it was not."""

    tpot: Array
    ttft: Array
    whole: Array
    """Of the whole time per token of output."""


class Predictor:
    """Predicts all rows at once: the work of each layout is computed once."""

    def __init__(self, rows: Sequence[Measured]) -> None:
        self.rows = rows
        self._layouts: list[Any] = []
        index: dict[bytes, int] = {}
        which = []
        for row in rows:
            key = msgspec.msgpack.encode(row.deployment)
            if key not in index:
                index[key] = len(self._layouts)
                self._layouts.append(row.deployment)
            which.append(index[key])
        self._which = np.array(which, dtype=np.intp)
        each = np.array([sizes(layout) for layout in self._layouts], dtype=np.float64)
        self._size = Sizes(*each[self._which].T)
        columns = np.array([_columns(row) for row in rows], dtype=np.float64).T
        self._columns = columns
        self.targets = Targets(
            tpot=_logs([r.tpot_s for r in rows]),
            ttft=_logs([r.ttft_s for r in rows]),
            whole=_logs([r.e2e_s / r.output_tokens if r.e2e_s else None for r in rows]),
        )

    def latencies(self, efficiency: Efficiency) -> Latencies:
        """Of each row."""
        each = np.array([rates(layout, efficiency) for layout in self._layouts], dtype=np.float64)
        rate = Rates(*each[self._which].T)
        return closed_loop(self._size, rate, ClosedLoop(*self._columns))

    def errors(self, efficiency: Efficiency) -> tuple[Array, Array]:
        """Logarithms of predicted over measured: of TPOT (or of the whole time), and of TTFT."""
        found = self.latencies(efficiency)
        outputs = self._columns[2]
        whole_s = (found.ttft_s + (outputs - 1.0) * found.tpot_s) / outputs
        tpot = np.where(
            np.isnan(self.targets.tpot),
            np.log(whole_s) - self.targets.whole,
            np.log(found.tpot_s) - self.targets.tpot,
        )
        return tpot, np.log(found.ttft_s) - self.targets.ttft


def _columns(row: Measured) -> tuple[float, ...]:
    """The fields of ClosedLoop."""
    return (
        row.requests,
        row.prompt_tokens,
        row.output_tokens,
        row.running_max,
        row.step_tokens_max,
        float(row.same_length),
    )


def _logs(values: Sequence[float | None]) -> Array:
    found: Array = np.log(np.array([np.nan if v is None else v for v in values], np.float64))
    return found


def fit(rows: Sequence[Measured]) -> Efficiency:
    """The efficiencies that explain the rows best."""
    rows = thinned(rows)
    predictor = Predictor(rows)
    names = Efficiency.__struct_fields__
    expected = np.log([getattr(Efficiency(), name) for name in names])
    spreads = np.array([_spread(name) for name in names])
    weights = np.sqrt(_weights(rows))

    def residuals(values: Array) -> Array:
        tpot, ttft = predictor.errors(_efficiency(names, values))
        both = np.concatenate([tpot * weights, ttft * weights * _TTFT_WEIGHT])
        found: Array = np.nan_to_num(both)
        return found

    values = expected.copy()
    raw_weights = np.concatenate([weights, weights * _TTFT_WEIGHT])
    damping = 1e-2
    base = residuals(values)
    for _ in range(_ROUNDS):
        jacobian = np.empty((len(base), len(values)))
        for i in range(len(values)):
            moved = values.copy()
            moved[i] += _STEP
            jacobian[:, i] = (residuals(moved) - base) / _STEP
        plain = np.abs(base) / raw_weights
        robust = 1.0 / np.maximum(plain, _NOISE) / _NOISE
        prior = (values - expected) / spreads**2
        hessian = jacobian.T @ (robust[:, None] * jacobian) + np.diag(1.0 / spreads**2)
        gradient = jacobian.T @ (robust * base) + prior
        for _attempt in range(8):
            step = np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), gradient)
            trial = _clipped(names, values - step)
            found = residuals(trial)
            if _cost(found, trial, expected, spreads, raw_weights) <= _cost(
                base, values, expected, spreads, raw_weights
            ):
                values, base, damping = trial, found, damping / 3
                break
            damping *= 4
        else:
            break
    return _efficiency(names, values)


def _spread(name: str) -> float:
    if name == "ttft_s":
        return _FIRST_SPREAD
    return _RATIO_SPREAD if name.endswith("_ratio") else _TIME_SPREAD


def _cost(
    found: Array, values: Array, expected: Array, spreads: Array, raw_weights: Array
) -> float:
    """Huber's loss of the residuals, and how far the parameters are from what is expected."""
    plain = np.abs(found) / raw_weights
    loss = np.where(plain < _NOISE, plain**2 / 2, _NOISE * (plain - _NOISE / 2)) / _NOISE**2
    return float(np.sum(raw_weights**2 * loss) + np.sum(((values - expected) / spreads) ** 2) / 2)


def _clipped(names: Sequence[str], values: Array) -> Array:
    """Shares stay below 1."""
    top = np.array([np.log(_RATIO_MAX) if name.endswith("_ratio") else np.inf for name in names])
    found: Array = np.minimum(values, top)
    return found


def _efficiency(names: Sequence[str], values: Array) -> Efficiency:
    return Efficiency(**dict(zip(names, np.exp(values).tolist(), strict=True)))


def _weights(rows: Sequence[Measured]) -> Array:
    """Rows of one set-up together weigh as much as the root of their number, and set-ups of one
    source as much as the root of theirs: what is measured together errs together."""
    keys = [_setup(row) for row in rows]
    setups = Counter(keys)
    sources: dict[str, float] = {}
    for key, count in setups.items():
        sources[key[0]] = sources.get(key[0], 0.0) + count**0.5
    return np.array([_ROW_SHARE * (setups[key] * sources[key[0]]) ** -0.5 for key in keys])


def _setup(row: Measured) -> tuple[str, ...]:
    d = row.deployment
    return row.source_class, d.model.name, d.gpu.name, d.weights, d.engine


def thinned(rows: Sequence[Measured]) -> list[Measured]:
    """At most so many rows of each set-up, evenly spread over those that there are."""
    setups: dict[tuple[str, ...], list[Measured]] = {}
    for row in rows:
        setups.setdefault(_setup(row), []).append(row)
    kept = []
    for group in setups.values():
        count = min(len(group), _SETUP_ROWS_MAX)
        kept += [group[i * len(group) // count] for i in range(count)]
    return kept
