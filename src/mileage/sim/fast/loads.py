"""Which replica gets the request, compiled: what `Router` and `ReplicaLoad` do.

A load is a record with the fields of `ReplicaLoad`, whose own methods are compiled here. What it
learns in a window is left to the object itself: it is marked, and as it is kept in `learnt`.
"""

from __future__ import annotations

import math

from mileage.policy.load import (
    KV_HOT_RATIO,
    QUEUE_MIN,
    QUEUE_RATIO,
    SILENCE_S,
    VIEWS_APART_S,
    WINDOW_REQUESTS,
    ReplicaLoad,
)
from mileage.policy.prefix_choice import HOT_FACTOR
from mileage.sim.fast.jit import compiled, inlined, jit
from mileage.sim.fast.layout import Floats, Record, Records

__all__ = ["choose", "finished", "left", "observed", "started"]

started = compiled(ReplicaLoad.started)
left = compiled(ReplicaLoad.ended)
_count = compiled(ReplicaLoad._count)
_clear_window = compiled(ReplicaLoad._clear_window)


@jit
def _done_s(world: Record, load: Record, work: float, now_s: float) -> float:
    """Seconds until a request of so much work would be done if sent now."""
    if now_s > load._view_until_s:
        load._view_until_s = math.inf
        load._others = 0
        load._queueing = load.hot = False
    work = load.work + work
    if load._others:
        work += load._others * world.work_tokens
    return float(work * load.s_per_token)


@jit
def _wait_s(world: Record, load: Record, now_s: float) -> float:
    return float(max(0.0, _done_s(world, load, 0.0, now_s) - load.free_s))


@inlined
def choose(
    world: Record, loads: Records, draws: Floats, preferred: int, work: float, now_s: float
) -> int:
    """The replica for a request of so much work; `preferred`: where its prefix belongs, or NONE."""
    if len(loads) == 1:
        return 0
    wait_s = 0.0
    if preferred >= 0:
        wait_s = _wait_s(world, loads[preferred], now_s)
        if wait_s <= world.slack_s and not loads[preferred].hot:
            return preferred
    chosen = _of_two(world, loads, draws, work, now_s)
    if preferred < 0 or chosen == preferred:
        return chosen
    if loads[preferred].hot and not loads[chosen].hot:
        return chosen
    within = wait_s <= _wait_s(world, loads[chosen], now_s) + world.slack_s
    return preferred if within else chosen


@inlined
def _of_two(world: Record, loads: Records, draws: Floats, work: float, now_s: float) -> int:
    """The better of two different replicas drawn at random."""
    first = int(draws[world.draws] * len(loads))
    second = int(draws[world.draws + 1] * (len(loads) - 1))
    world.draws += 2
    if second >= first:
        second += 1
    one, other = loads[first], loads[second]
    one_s = _done_s(world, one, work, now_s)
    other_s = _done_s(world, other, work, now_s)
    if one.hot != other.hot:
        if one.hot:
            one_s *= HOT_FACTOR
        else:
            other_s *= HOT_FACTOR
    return first if one_s <= other_s else second


@inlined
def finished(load: Record, learnt: Record, sequence: Record, now_s: float) -> None:
    """One of our requests is complete: learn from it."""
    left(load, sequence.work, now_s)
    presence_s = now_s - sequence.started_s
    _count(load, sequence.work, sequence.prompt, sequence.output_tokens, presence_s)
    if load._finished >= WINDOW_REQUESTS and now_s >= load._window_due_s:
        _copy(load, learnt)
        load.to_learn = True
        load._window_due_s = math.inf
        _clear_window(load)


@inlined
def _copy(load: Record, learnt: Record) -> None:
    learnt.work, learnt.in_flight = load.work, load.in_flight
    learnt._area, learnt._began_s, learnt._changed_s = load._area, load._began_s, load._changed_s
    learnt._done, learnt._done_work = load._done, load._done_work
    learnt._expected, learnt._finished = load._expected, load._finished
    learnt._idle_s, learnt._presence_s = load._idle_s, load._presence_s
    learnt._others, learnt._queueing = load._others, load._queueing
    learnt.hot, learnt._sampled_s = load.hot, load._sampled_s
    learnt._view_until_s, learnt._window_due_s = load._view_until_s, load._window_due_s
    learnt.view_max_age_s = load.view_max_age_s


@inlined
def observed(load: Record, last: Record, view: Record, now_s: float) -> bool:
    """The replica was scraped. False: the object itself has to take the view in, since something
    is to be learned from it."""
    if not last.known:
        return False
    apart_s = view.observed_s - last.observed_s
    in_time = apart_s <= load.view_max_age_s
    if in_time and apart_s >= VIEWS_APART_S and now_s - load._sampled_s > SILENCE_S:
        # As `_learn_from_views`: an engine that stood idle in between teaches nothing.
        present = last.running + view.running + last.waiting + view.waiting
        if present >= 2:
            return False
    load._view_until_s = view.observed_s + load.view_max_age_s
    load._others = max(0, view.running + view.waiting - load.in_flight)
    load._queueing = view.waiting >= max(QUEUE_MIN, QUEUE_RATIO * view.running)
    preempted = in_time and view.preemptions > last.preemptions
    load.hot = view.kv_usage >= KV_HOT_RATIO or preempted
    return True
