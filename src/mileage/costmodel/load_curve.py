"""LoadCurve: the requests that an engine decoded at each moment, and their contexts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mileage.costmodel.served import ServedRequest

__all__ = ["LoadCurve"]

Floats = NDArray[np.float64]


class LoadCurve:
    """Both as functions of time, from when each request's first token and its last one came.

    A request without a first token counts from its dispatch on: when its prompt was computed is
    not known. Between the two its context grows evenly, unless the times of its tokens are known.
    """

    def __init__(self, served: Sequence[ServedRequest]) -> None:
        starts = np.array([_start_s(each) for each in served])
        ends = np.array([each.last_s for each in served])
        prompts = np.array([each.prompt_tokens for each in served], dtype=np.float64)
        counts = np.array([each.output_tokens for each in served], dtype=np.float64)
        tokens = [_token_times(each) for each in served]
        self._running = _Steps([(starts, np.ones_like(starts)), (ends, -np.ones_like(ends))])
        self._context = _Steps(
            [
                (starts, prompts),
                (ends, -(prompts + counts)),
                *((times, np.ones_like(times)) for times in tokens),
            ]
        )

    def running(self, start_s: Floats, end_s: Floats) -> Floats:
        """Mean number of requests that decoded from `start_s` to `end_s`."""
        return self._running.mean(start_s, end_s)

    def context_tokens(self, start_s: Floats, end_s: Floats) -> Floats:
        """Mean tokens of their contexts together."""
        return self._context.mean(start_s, end_s)


class _Steps:
    """A function that is 0 at first and changes by so much at each of some times."""

    def __init__(self, changes: Sequence[tuple[Floats, Floats]]) -> None:
        times = np.concatenate([np.zeros(0), *(at for at, _ in changes)])
        by = np.concatenate([np.zeros(0), *(amount for _, amount in changes)])
        order = np.argsort(times, kind="stable")
        self._times = times[order]
        self._values = np.concatenate(([0.0], np.cumsum(by[order])))
        widths = np.diff(self._times, append=self._times[-1:])
        self._areas = np.concatenate(([0.0], np.cumsum(self._values[1:] * widths)))

    def mean(self, start_s: Floats, end_s: Floats) -> Floats:
        """Over each of the spans, none of them empty."""
        mean: Floats = (self._area(end_s) - self._area(start_s)) / (end_s - start_s)
        return mean

    def _area(self, at_s: Floats) -> Floats:
        index = np.searchsorted(self._times, at_s, side="right")
        before = np.maximum(index - 1, 0)
        area: Floats = self._areas[before] + self._values[index] * np.where(
            index > 0, at_s - self._times[before], 0.0
        )
        return area


def _start_s(served: ServedRequest) -> float:
    return served.dispatched_s if served.first_s is None else served.first_s


def _token_times(served: ServedRequest) -> Floats:
    if served.token_times_s:
        return np.array(served.token_times_s)
    return np.linspace(_start_s(served), served.last_s, served.output_tokens)
