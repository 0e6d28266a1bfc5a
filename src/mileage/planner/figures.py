"""Figures: what a simulated set-up comes to, and how exactly the trace tells it."""

from __future__ import annotations

import math
import statistics
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from mileage.measure.distributions import t_critical
from mileage.measure.quantiles import rank

__all__ = ["Figures", "batch_interval", "quantile_of"]

_BATCHES: Final = 10
_ENTRIES_MIN: Final = 2

Floats = NDArray[np.float64]
Interval = tuple[float, float]


class Figures(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Of one simulation. None: it cannot be said, and never 0.

    Latencies are at the goal's quantile of all requests: one without an answer is later than any.
    """

    requests: int
    answered: int
    attainment_ratio: float
    """Share of all requests that met all targets."""
    feasible: bool
    """The goal was kept: enough requests met their targets, and the fleet caught up in time."""
    caught_up: bool
    ttft_s: float | None
    itl_s: float | None
    usd_per_mtok: float | None
    """Of output tokens, all GPUs paid for from the first arrival to the last answer."""
    gpu_h_per_mtok: float | None
    cost: float
    """The one of both that ranks; infinite where there is none."""
    gpus: int
    gpu_hours: float
    output_tokens_per_s: float
    busy_ratio: float
    kv_peak_ratio: float
    """Of the fullest engine at its fullest moment."""
    running_mean: float
    """Requests that run in a replica, on average over the time."""
    waiting_mean: float
    """Requests that wait in the engines, on average over the time."""
    preemptions: int
    prefix_hit_ratio: float | None
    duration_s: float
    interval: dict[str, Interval] = {}
    """95 %, by what is the same in all ten tenths of the trace; of figures that it has."""
    problem: str | None = None
    """Why it could not be simulated to its end."""


def quantile_of(values: Floats, quantile: float) -> float | None:
    """By nearest rank; None without values, and where it is infinite."""
    if not len(values):
        return None
    at = rank(quantile, len(values)) - 1
    found = float(np.partition(values, at)[at])
    return found if math.isfinite(found) else None


def batch_interval(value: float | None, batches: list[float | None]) -> Interval | None:
    """95 % about `value`, by its values in batches that follow each other.

    Student's interval of their mean (Law, Simulation Modeling and Analysis, 9.5.3), laid about the
    value of the whole. None where a batch has none.
    """
    known = [each for each in batches if each is not None and math.isfinite(each)]
    if value is None or len(known) < max(len(batches), _ENTRIES_MIN):
        return None
    half = t_critical(0.05, len(known) - 1) * statistics.stdev(known) / math.sqrt(len(known))
    return max(0.0, value - half), value + half
