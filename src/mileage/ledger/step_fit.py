"""StepFit: what the steps of one replica cost, learned from window to window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from mileage.costmodel.batch_fit import fit_planes, relative_errors
from mileage.costmodel.plane import Features
from mileage.ledger.columns import Floats
from mileage.ledger.step_model import StepModel

__all__ = ["StepFit", "StepFitState"]

_KEPT_MAX: Final = 1024
_KEPT_MIXED_MAX: Final = 768
_TAKEN_MAX: Final = 256
"""Samples of one window of each kind; those with prompts are kept apart, as there are few."""
_SAMPLES_MIN: Final = 16
_REFIT_RATIO: Final = 0.125
_DEAREST_QUANTILE: Final = 0.85
_STEP_S_MIN, _STEP_S_MAX = 1e-7, 1e4
_LOAD_MAX: Final = 1e10


class StepFitState(msgspec.Struct, frozen=True, array_like=True):
    """What was learned; samples are rows of (decode, kv and prompt tokens, seconds), in single
    precision, as it is stored with every window."""

    plain: bytes = b""
    mixed: bytes = b""
    planes: tuple[Features, ...] = ()
    error_ratio: float | None = None
    unfitted: int = 0


class StepFit:
    """The larger of one or two planes through the latest samples: see `fit_planes`.

    It is fitted anew when an eighth of its samples have changed. No samples, no model.
    """

    def __init__(self, state: StepFitState | None = None) -> None:
        state = state or StepFitState()
        self._plain, self._mixed = _rows(state.plain), _rows(state.mixed)
        self._unfitted = state.unfitted
        self._planes = state.planes
        self.error_ratio = state.error_ratio
        """Median of |measured - predicted| over the larger of the two; None: no fit yet."""
        self.model = StepModel(state.planes) if state.planes else None

    def state(self) -> StepFitState:
        """All of it."""
        return StepFitState(
            self._plain.astype(np.float32).tobytes(),
            self._mixed.astype(np.float32).tobytes(),
            self._planes,
            self.error_ratio,
            self._unfitted,
        )

    def learn(
        self, decode: Floats, kv: Floats, prefill: Floats, step_s: Floats, *, exact: bool = True
    ) -> None:
        """Take in steps of one window, and fit anew where that is due.

        Not `exact`: prompts may have had fewer tokens to compute, as some were in a cache that
        nobody tells of.
        """
        rows = np.stack([decode, kv, prefill, step_s], axis=1)
        # As they are stored, so that a restart changes nothing.
        rows = np.clip(rows, -1.0, 1e30).astype(np.float32).astype(np.float64)
        possible = (rows[:, :3] <= _LOAD_MAX).all(axis=1) & (rows >= 0.0).all(axis=1)
        possible &= (step_s >= _STEP_S_MIN) & (step_s <= _STEP_S_MAX)
        possible &= rows[:, :3].any(axis=1)
        mixed = prefill > 0.0
        plain, with_prompts = _spread(rows[possible & ~mixed]), _spread(rows[possible & mixed])
        self._plain = np.concatenate((self._plain, plain))[-_KEPT_MAX:]
        self._mixed = np.concatenate((self._mixed, with_prompts))[-_KEPT_MIXED_MAX:]
        self._unfitted += len(plain) + len(with_prompts)
        count = len(self._plain) + len(self._mixed)
        if count >= _SAMPLES_MIN and self._unfitted >= _REFIT_RATIO * count:
            self._fit(exact=exact)

    def _fit(self, *, exact: bool) -> None:
        rows = self._plain if len(self._plain) and not exact else self._rows()
        loads = np.concatenate((np.ones((len(rows), 1)), rows[:, :3]), axis=1)
        planes = fit_planes(loads, rows[:, 3])
        self._unfitted = 0
        if not exact and len(self._plain):
            token_s = _token_s(planes, self._mixed)
            planes = tuple((a, b, c, token_s) for a, b, c, _ in planes)
        if not any(any(plane) for plane in planes):
            return
        self._planes = planes
        self.model = StepModel(planes)
        errors = np.abs(relative_errors(planes, loads, rows[:, 3]))
        self.error_ratio = float(np.median(errors))

    def _rows(self) -> Floats:
        return np.concatenate((self._plain, self._mixed))


def _token_s(planes: Sequence[Features], mixed: Floats) -> float:
    """What a prompt token costs where some were not computed: as much as the dearest ones did.

    Of all prompts those that had nothing in the cache seem the dearest, and they tell the truth;
    they are found as the upper part, by tokens, of the cost per token.
    """
    if not len(mixed):
        return 0.0
    base_s = StepModel(planes).step_s(mixed[:, 0], mixed[:, 1], np.zeros(len(mixed)))
    tokens = mixed[:, 2]
    each_s = np.maximum(0.0, mixed[:, 3] - base_s) / tokens
    order = np.argsort(each_s)
    upto = np.cumsum(tokens[order]) / tokens.sum()
    return float(each_s[order][np.searchsorted(upto, _DEAREST_QUANTILE)])


def _spread(rows: Floats) -> Floats:
    """At most so many of them, evenly from the first to the last."""
    if len(rows) <= _TAKEN_MAX:
        return rows
    spread: Floats = rows[np.linspace(0, len(rows) - 1, _TAKEN_MAX).astype(np.int64)]
    return spread


def _rows(data: bytes) -> Floats:
    return np.frombuffer(data, dtype=np.float32).reshape(-1, 4).astype(np.float64)
