"""Whether a run was steady: where its warm-up ended, and whether its queue grew without end."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from mileage.measure.call_record import CallRecord
from mileage.measure.distributions import t_critical
from mileage.measure.record_latency import Floats, latencies
from mileage.measure.run_series import in_flight

__all__ = ["SteadyState", "mser5", "steady_state"]

_BATCHES = 20
_REQUESTS_MIN = 50
_GROWTH_RATIO_MIN = 0.02
"""A queue that grows by less than 2 % of arrivals is not told from a busy server's noise."""
_GROWTH_SPAN_MIN = 0.8
"""The trend has to carry the queue, over the window, by this share of its mean. A queue that grows
from nothing at an even pace gets to twice its mean; one that wanders about its mean, to little."""


class SteadyState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the measured window says about itself; None is what could not be told."""

    steady: bool | None
    """None: too few requests to tell."""
    text: str
    transient_s: float | None
    """Seconds at the start of the window that still look like warm-up (MSER-5 on E2E)."""
    growth_rps: float | None
    """Requests per second by which those in flight grew, on a straight line."""
    growth_ci95_rps: tuple[float, float] | None
    overload_ratio: float | None
    """`growth_rps` / arrivals per second: the share of the load that is beyond capacity."""
    in_flight_mean: float | None


def steady_state(records: Sequence[CallRecord], *, start_s: float, end_s: float) -> SteadyState:
    """Judge the window from `start_s` to `end_s`, on the run's clock, by all records of the run.

    Overload: the requests in flight, as means of 20 batches, rise from one batch to the next
    beyond chance (Student's t at 1 % of the 19 rises: beyond capacity they are independent and add
    up; in a stable queue they cancel, and t is smaller than chance makes it), and the line through
    them rises by at least 2 % of the arrival rate and by most of their mean over the window.
    Warm-up: MSER-5 on the E2E of requests by schedule asks for more than a third of the window to
    be dropped, and those dropped took longer or shorter by a tenth.

    A closed loop cannot be overloaded: there the requests in flight are its own number. Raises
    ValueError for a window that has no length.
    """
    if not end_s > start_s:
        raise ValueError(f"a window ends after it begins, got {start_s!r} to {end_s!r}")
    columns = latencies(records)
    own = (columns.scheduled_s >= start_s) & (columns.scheduled_s < end_s)
    arrivals = int(own.sum())
    if arrivals < _REQUESTS_MIN:
        return SteadyState(
            steady=None,
            text=f"{arrivals} requests are too few to tell whether the run was steady",
            transient_s=None,
            growth_rps=None,
            growth_ci95_rps=None,
            overload_ratio=None,
            in_flight_mean=None,
        )
    step_s = (end_s - start_s) / _BATCHES
    flying = np.array(in_flight(columns.scheduled_s, columns.ended_s, start_s, step_s, _BATCHES))
    x = np.arange(_BATCHES) - (_BATCHES - 1) / 2.0
    slope = float(x @ flying) / float(x @ x)
    rises = np.diff(flying)
    error = float(rises.std(ddof=1)) / math.sqrt(len(rises))
    rate = arrivals / (end_s - start_s)
    growth, mean = slope / step_s, float(flying.mean())
    half = t_critical(0.05, len(rises) - 1) * error / step_s
    grows = (
        float(rises.mean()) > t_critical(0.01, len(rises) - 1) * error
        and growth >= _GROWTH_RATIO_MIN * rate
        and slope * _BATCHES >= _GROWTH_SPAN_MIN * mean
    )
    e2e = own & columns.ok
    order = np.argsort(columns.scheduled_s[e2e], kind="stable")
    transient_s = _transient_s(
        columns.scheduled_s[e2e][order], columns.e2e_s[e2e][order], start_s, end_s
    )
    warm = transient_s is not None and transient_s > (end_s - start_s) / 3.0
    text = "steady"
    if grows:
        text = (
            f"not steady: requests in flight grew by {growth:.3g} per second, {growth / rate:.0%} "
            "of the arrivals: the load is beyond capacity"
        )
    elif warm:
        text = f"not steady: the first {transient_s:.3g} s still look like warm-up"
    return SteadyState(
        steady=not (grows or warm),
        text=text,
        transient_s=transient_s,
        growth_rps=growth,
        growth_ci95_rps=(growth - half, growth + half),
        overload_ratio=growth / rate,
        in_flight_mean=mean,
    )


def mser5(values: Floats) -> int | None:
    """How many of `values`, in order of time, to drop so that the rest looks stationary.

    White (1997): of means of 5 values, the cut d, at most half of all, that minimises the variance
    of those kept / their number. None below 20 values.
    """
    count = len(values) // 5
    if count < 4:
        return None
    means = values[: 5 * count].reshape(count, 5).mean(axis=1)
    means = means - means.mean()
    kept = count - np.arange(count // 2 + 1)
    sums = np.cumsum(means[::-1])[::-1][: len(kept)]
    squares = np.cumsum((means**2)[::-1])[::-1][: len(kept)]
    score = (squares - sums**2 / kept) / kept**2
    return 5 * int(np.argmin(score))


def _transient_s(scheduled_s: Floats, e2e_s: Floats, start_s: float, end_s: float) -> float | None:
    dropped = mser5(e2e_s)
    if dropped is None:
        return None
    if dropped == 0:
        return 0.0
    early, late = float(e2e_s[:dropped].mean()), float(e2e_s[dropped:].mean())
    if late > 0.0 and abs(early / late - 1.0) < 0.1:
        return 0.0
    return min(float(scheduled_s[dropped]), end_s) - start_s
