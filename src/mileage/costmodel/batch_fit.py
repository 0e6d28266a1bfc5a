"""Batch fit: one or two planes through all step samples at once, strays counting little."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mileage.costmodel.plane import DIMENSIONS, Features

__all__ = ["fit_line", "fit_planes", "relative_errors"]

Floats = NDArray[np.float64]

_PASSES: Final = 8
_ROUNDS: Final = 12
_HUBER: Final = 2.0
_NOISE_MIN_RATIO: Final = 0.01
_GAIN_MIN_RATIO: Final = 0.8
_PART_MIN: Final = 16
_RIDGE: Final = 1e-6
_MASKS: Final = {
    axes: np.array(
        [
            [axis in subset for axis in range(axes)]
            for size in range(axes, 0, -1)
            for subset in combinations(range(axes), size)
        ]
    )
    for axes in range(1, DIMENSIONS + 1)
}
"""Of so many axes, the sets of one or more of them."""


def fit_planes(loads: Floats, seconds: Floats) -> tuple[Features, ...]:
    """The planes whose larger one is the closest to the samples, in relative error.

    `loads`: rows of (1, running, kv_tokens, prefill_tokens); `seconds`, above 0, of each. Two
    planes are found as in `StepTimeFit`, by giving each sample in turn to the one on top there
    (Magnani and Boyd, "Convex piecewise-linear fitting", 2009), from halves by each feature; they
    are kept only where they err clearly less than one. All samples are there at once, so that a
    kind of step that is rare, such as those with prompts, is no stray among the many.
    """
    best = [_plane(loads, seconds)]
    least = alone = _loss(best, loads, seconds)
    for axis in range(1, DIMENSIONS):
        planes = _alternated(loads, seconds, loads[:, axis] > np.median(loads[:, axis]))
        loss = _loss(planes, loads, seconds)
        if loss < least and loss < _GAIN_MIN_RATIO * alone:
            best, least = planes, loss
    return tuple((float(p[0]), float(p[1]), float(p[2]), float(p[3])) for p in best)


def fit_line(counts: Floats, seconds: Floats) -> tuple[float, float]:
    """Seconds at 0 and per count, neither below 0, in the same way; `seconds` above 0."""
    line = _plane(np.stack([np.ones_like(counts), counts], axis=1), seconds)
    return float(line[0]), float(line[1])


def relative_errors(planes: Sequence[Features], loads: Floats, seconds: Floats) -> Floats:
    """(Predicted - measured) over the larger of the two, of each sample: in -1..1."""
    return _errors(np.array(planes), loads, seconds)


def _errors(planes: Floats, loads: Floats, seconds: Floats) -> Floats:
    predicted = (loads @ planes.T).max(axis=1)
    errors: Floats = (predicted - seconds) / np.maximum(predicted, seconds)
    return errors


def _loss(planes: Sequence[Floats], loads: Floats, seconds: Floats) -> float:
    errors = np.abs(_errors(np.array(planes), loads, seconds))
    usual = max(float(np.median(errors)), _NOISE_MIN_RATIO)
    # Huber's loss: beyond some times the usual error it grows with the error, not its square.
    bound = _HUBER * usual
    return float(np.where(errors <= bound, errors**2, bound * (2 * errors - bound)).sum())


def _alternated(loads: Floats, seconds: Floats, upper: NDArray[np.bool_]) -> list[Floats]:
    whole = _plane(loads, seconds)
    planes = [whole]
    for _ in range(_ROUNDS):
        if min(int(upper.sum()), int((~upper).sum())) < _PART_MIN:
            return planes
        planes = [_plane(loads[part], seconds[part]) for part in (upper, ~upper)]
        on_top = loads @ planes[0] >= loads @ planes[1]
        if bool((on_top == upper).all()):
            break
        upper = on_top
    return planes


def _plane(loads: Floats, seconds: Floats) -> Floats:
    """Coefficients of 0 or more by least relative errors, reweighted by Huber's weights.

    Errors are relative to the larger of measured and predicted, so that a step that seems to have
    taken no time, as the one before was told of late, counts no more than any other.
    """
    axes = loads.shape[1]
    plane, weights = np.zeros(axes), np.ones(len(seconds))
    scale = np.maximum(seconds, np.median(seconds))
    for _ in range(_PASSES):
        rows, targets = loads / scale[:, None], seconds / scale
        # Columns of one size: seconds per token and per request differ by 1e5.
        size = np.sqrt((rows**2).mean(axis=0))
        used = [axis for axis in range(axes) if size[axis] > 0.0]
        plane = np.zeros(axes)
        plane[used] = _least_squares(rows[:, used] / size[used], targets, weights) / size[used]
        predicted = loads @ plane
        scale = np.maximum(predicted, seconds)
        errors = np.abs(predicted - seconds) / scale
        usual = max(float(np.median(errors)), _NOISE_MIN_RATIO)
        weights = np.minimum(1.0, _HUBER * usual / np.maximum(errors, 1e-12))
    return plane


def _least_squares(rows: Floats, targets: Floats, weights: Floats) -> Floats:
    """The exact least squares of rows @ x = targets with x >= 0: the best set of those above 0."""
    matrix = (rows * weights[:, None]).T @ rows
    matrix[np.diag_indices_from(matrix)] *= 1.0 + _RIDGE
    right = rows.T @ (weights * targets)
    masks = _MASKS[rows.shape[1]]
    # One system per set; what is not in it is 0.
    systems = np.where(masks[:, :, None] & masks[:, None, :], matrix, np.eye(rows.shape[1]))
    found = np.linalg.solve(systems, np.where(masks, right, 0.0)[:, :, None])[:, :, 0]
    gains = np.where(found.min(axis=1) >= 0.0, found @ right, 0.0)
    best = int(gains.argmax())
    return found[best] if gains[best] > 0.0 else np.zeros(rows.shape[1])
