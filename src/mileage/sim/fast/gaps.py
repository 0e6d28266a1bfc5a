"""The times of an engine's latest steps, and the figures of a request's gaps, compiled.

`times` has the log of each engine; `past` the gaps of requests that were preempted.
"""

from __future__ import annotations

import math

from mileage.measure.quantiles import nearest_rank
from mileage.sim.fast.jit import compiled, inlined, jit
from mileage.sim.fast.layout import Floats, Record, Records
from mileage.sim.sequence import DECODING
from mileage.sim.step_timer import GAP_QUANTILE

__all__ = ["forget", "keep_gaps", "log_steps", "measure"]

_rank = compiled(nearest_rank)


@inlined
def log_steps(engine: Record, times: Floats, steps: int) -> None:
    """So many steps of the stretch are over; there must be room."""
    at = engine.times_at + engine.times_kept
    engine.times_kept += steps
    c1, d1, c2, d2 = engine.c1, engine.d1, engine.c2, engine.d2
    if engine.turn >= steps:
        for step in range(steps):
            times[at + step] = step * d1 + c1
        return
    for step in range(steps):
        times[at + step] = max(step * d1 + c1, c2 + d2 * step)


@inlined
def forget(engine: Record, seqs: Records, times: Floats) -> None:
    """Forget the steps before those of the requests that decode."""
    oldest, index = engine.steps, engine.run_first
    while index >= 0:
        sequence = seqs[index]
        if sequence.state == DECODING and sequence.first_at < oldest:
            oldest = sequence.first_at
        index = sequence.run_after
    drop = oldest - engine.times_base
    for at in range(engine.times_at, engine.times_at + engine.times_kept - drop):
        times[at] = times[at + drop]
    engine.times_base = oldest
    engine.times_kept -= drop


@inlined
def keep_gaps(engine: Record, sequence: Record, times: Floats, past: Floats, spent: int) -> int:
    """Put the gaps so far of a request that is preempted at the end of `past`, of which `spent` are
    in use, with a place for the gap that this makes; how many are in use then."""
    at = spent
    for old in range(sequence.past_at, sequence.past_at + sequence.past):
        past[at] = past[old]
        at += 1
    shift = engine.times_at - engine.times_base
    for step in range(sequence.first_at + shift, engine.steps + shift):
        past[at] = times[step]
        at += 1
    past[at] = math.nan
    at += 1
    sequence.past_at = spent
    sequence.past = at - spent
    return at


@jit
def measure(
    engine: Record, sequence: Record, times: Floats, past: Floats, scratch: Floats, now_s: float
) -> None:
    """The p99 (nearest rank) and the mean of the gaps of a request that is complete."""
    start = engine.times_at + sequence.first_at - engine.times_base
    end = engine.times_at + engine.steps - engine.times_base
    count = sequence.past + end - start
    if not count:
        sequence.itl_p99_s = sequence.itl_mean_s = math.nan
        return
    sequence.itl_mean_s = (now_s - sequence.first_token_s) / count
    if count < 100:
        worst_s = -math.inf
        for at in range(sequence.past_at, sequence.past_at + sequence.past):
            worst_s = max(worst_s, past[at])
        for at in range(start, end):
            worst_s = max(worst_s, times[at])
        sequence.itl_p99_s = worst_s
        return
    size = 0
    for at in range(sequence.past_at, sequence.past_at + sequence.past):
        scratch[size] = past[at]
        size += 1
    for at in range(start, end):
        scratch[size] = times[at]
        size += 1
    sequence.itl_p99_s = _select(scratch, count, _rank(GAP_QUANTILE, count) - 1)


@inlined
def _select(values: Floats, count: int, place: int) -> float:
    """The value at `place` of the first `count` if they were sorted (Hoare 1961)."""
    low, high = 0, count - 1
    while low < high:
        pivot = values[place]
        left, right = low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while pivot < values[right]:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if right < place:
            low = left
        if place < left:
            high = right
    return float(values[place])
