"""The loop over all that happens, compiled. It returns where an object has to be asked.

What it needs of Python it tells by a code, and goes on where it was when it is called again: to
decide limits (`DECIDE`), to learn how fast a replica is (`LEARN`, `LOOK`), to make room (`GROW`,
`EMPTY`).
"""

from __future__ import annotations

import math
from typing import Final

from mileage.sim import step_math
from mileage.sim.fast import engine, fleet, gaps, loads, throttles
from mileage.sim.fast.jit import compiled, inlined
from mileage.sim.fast.layout import NONE, Floats, Ints, Record, Records

__all__ = [
    "CROWDED",
    "DECIDE",
    "DONE",
    "EMPTY",
    "GROW",
    "LEARN",
    "LOOK",
    "run",
]

DONE: Final = 0
DECIDE: Final = 1
LEARN: Final = 2
LOOK: Final = 3
GROW: Final = 4
EMPTY: Final = 5
CROWDED: Final = 6
_NEXT: Final = 0
_SEEING: Final = 1
_SEEN: Final = 2
_GOING_ON: Final = 3
_DECIDED: Final = 4
_DECIDED_AT_ARRIVAL: Final = 5
_PLACING: Final = 6
"""Where it is: before the next event; at a replica's scrape, before and after its view is taken in;
at what follows, before and after limits are decided; and at an arrival, likewise."""
_GO_ON: Final = -1
_WAKE: Final = 0
_TELL: Final = 1
_SCRAPE: Final = 2
_STEP: Final = 3

_busy_of = compiled(step_math.busy_of)

# Compiled code knows functions by their global names.
arrive, go_on, place, step, tell = fleet.arrive, fleet.go_on, fleet.place, fleet.step, fleet.tell
blocks_used, steps_done = engine.blocks_used, engine.steps_done
decide_static, pass_time = throttles.decide_static, throttles.pass_time
forget, load_observed = gaps.forget, loads.observed


def run(
    worlds: Records,
    engines: Records,
    replicas: Records,
    learnt: Records,
    throttling: Records,
    services: Records,
    samples: Records,
    views: Records,
    lasts: Records,
    seqs: Records,
    ints: Ints,
    owns: Ints,
    tables: Floats,
    times: Floats,
    past: Floats,
    scratch: Floats,
    draws: Floats,
    preferred: Ints,
    rows: Floats,
) -> int:
    """Go on until all is over or Python is needed; a code says what for."""
    world = worlds[0]
    while True:
        code = _GO_ON
        if world.phase == _NEXT:
            code = _happen(
                world, engines, replicas, learnt, throttling, services, samples, seqs, ints, owns,
                tables, times, past, scratch, draws, preferred,
            )  # fmt: skip
        elif world.phase == _SEEING:
            code = _scrape(world, engines, replicas, throttling, views, lasts, ints, rows)
        elif world.phase == _SEEN:
            world.at += 1
            world.after = _SEEING
            world.phase = _GOING_ON if world.now_s >= world.due_s else _SEEING
        elif world.phase == _GOING_ON and world.now_s >= world.due_s:
            world.phase = _DECIDED
            code = DECIDE
        elif world.phase == _PLACING:
            place(
                world, engines, replicas, throttling, services, seqs, draws, preferred, world.index
            )
            world.phase = _NEXT
        else:
            go_on(world, engines, replicas, throttling, services, seqs)
            if world.phase == _GOING_ON:
                world.phase = world.after
            else:  # what a higher limit gives is used before all else
                world.phase = _GOING_ON if world.phase == _DECIDED else _PLACING
        if code == DECIDE:
            pass_time(throttling, world.now_s)
            if world.decides:
                decide_static(world, throttling, views, engines)
                continue
        if code != _GO_ON:
            return code


@inlined
def _happen(
    world: Record,
    engines: Records,
    replicas: Records,
    learnt: Records,
    throttling: Records,
    services: Records,
    samples: Records,
    seqs: Records,
    ints: Ints,
    owns: Ints,
    tables: Floats,
    times: Floats,
    past: Floats,
    scratch: Floats,
    draws: Floats,
    preferred: Ints,
) -> int:
    """The next event, or what of it has to be done first."""
    kind = _next(world, engines)
    if world.arrival < len(seqs) and seqs[world.arrival].arrived_s <= world.next_s:
        world.now_s = seqs[world.arrival].arrived_s
        if world.in_flight >= world.in_flight_max:
            return CROWDED
        world.index = arrive(world, seqs)
        if world.now_s >= world.due_s:
            world.phase = _DECIDED_AT_ARRIVAL
            return DECIDE
        world.phase = _PLACING
        return _GO_ON
    if world.arrival == len(seqs) and not world.open:
        return DONE
    if kind == _STEP:
        at = world.at
        if not _has_room(engines[at], seqs, ints, times, past, world.spent):
            return GROW
        world.now_s = world.next_s
        step(
            world, engines, replicas, learnt, throttling, services, samples, seqs, ints, owns,
            tables, times, past, scratch, at,
        )  # fmt: skip
        return LEARN if replicas[at].to_learn else _GO_ON
    world.now_s = world.next_s
    if kind == _TELL:
        tell(world, engines, replicas, throttling, services, seqs)
    elif kind == _WAKE:
        world.wake_s = world.asked_s = math.inf
        world.phase, world.after = _GOING_ON, _NEXT
    else:
        world.phase, world.at = _SEEING, 0
        world.running = world.waiting = world.kv_usage = world.busy = 0.0
    return _GO_ON


@inlined
def _scrape(
    world: Record,
    engines: Records,
    replicas: Records,
    throttling: Records,
    views: Records,
    lasts: Records,
    ints: Ints,
    rows: Floats,
) -> int:
    """The next replica is looked at; after the last one the fleet's state is kept."""
    at = world.at
    if at == len(engines):
        if world.rows == len(rows):
            return EMPTY
        _add_row(world, throttling, rows, at)
        world.scrape_s += world.scrape_interval_s
        world.phase = _NEXT
        return _GO_ON
    _look(world, engines[at], views[at], lasts[at], ints)
    world.phase = _SEEN
    if world.routes and not load_observed(replicas[at], lasts[at], views[at], world.now_s):
        return LOOK
    return _GO_ON


@inlined
def _next(world: Record, engines: Records) -> int:
    """What is next, and when; arrivals apart."""
    kind, time_s = _WAKE, world.wake_s
    if world.tell_first != NONE and world.now_s < time_s:
        kind, time_s = _TELL, world.now_s
    if world.scrape_s < time_s:
        kind, time_s = _SCRAPE, world.scrape_s
    ticket = 0
    for at in range(len(engines)):
        due_s = engines[at].due_s
        if due_s < time_s or (kind == _STEP and due_s == time_s and engines[at].ticket < ticket):
            kind, time_s = _STEP, due_s
            ticket = engines[at].ticket
            world.at = at
    world.next_s = time_s
    return kind


@inlined
def _has_room(
    its: Record, seqs: Records, ints: Ints, times: Floats, past: Floats, spent: int
) -> bool:
    """Whether the log has room for the steps in progress, and `past` for the gaps of all that might
    be preempted after them."""
    if its.times_kept + its.planned > its.times_max:
        forget(its, seqs, times)
        if its.times_kept + its.planned > its.times_max:
            return False
    gaps_ = its.past_sum + its.count * (its.steps + its.planned + 1) - its.first_sum
    for at in range(its.chunks_at, its.chunks_at + its.chunks_size):
        gaps_ += seqs[ints[at]].past + 1
    return bool(spent + gaps_ <= len(past))


@inlined
def _look(world: Record, its: Record, view: Record, last: Record, ints: Ints) -> None:
    """What a scrape tells now: see `Node`."""
    now_s = world.now_s
    _copy(view, last)
    age_s = now_s - its.begun_s if its.planned else 0.0
    busy_s = its.busy_s + age_s
    decoded = steps_done(its, now_s) * its.count
    tokens = its.prefill_tokens + its.decode_tokens + decoded
    passed_s = now_s - its.seen_s
    view.busy = math.nan
    if passed_s > 0.0:
        world.busy += (busy_s - its.seen_busy_s) / passed_s
        view.busy = _busy_of(tokens - its.seen_tokens, its.token_s, passed_s)
    its.seen_s, its.seen_tokens, its.seen_busy_s = now_s, tokens, busy_s
    view.known, view.observed_s = True, now_s
    view.running, view.waiting = its.running, its.waiting
    view.kv_usage = blocks_used(its, ints, now_s) / its.kv_blocks
    view.hit_tokens, view.query_tokens = its.hit_tokens, its.query_tokens
    view.preemptions, view.prompt_tokens = its.preemptions, its.prompt_tokens
    view.output_tokens = its.output_tokens + decoded
    world.running += its.running
    world.waiting += its.waiting
    world.kv_usage += view.kv_usage


@inlined
def _copy(view: Record, last: Record) -> None:
    last.known, last.observed_s = view.known, view.observed_s
    last.running, last.waiting = view.running, view.waiting
    last.kv_usage, last.busy = view.kv_usage, view.busy
    last.hit_tokens, last.query_tokens = view.hit_tokens, view.query_tokens
    last.preemptions, last.prompt_tokens = view.preemptions, view.prompt_tokens
    last.output_tokens = view.output_tokens


@inlined
def _add_row(world: Record, throttling: Records, rows: Floats, count: int) -> None:
    """A sample of the fleet, as a series takes it."""
    row = rows[world.rows]
    world.rows += 1
    limit = 0
    for at in range(count):
        limit += throttling[at].limit
    row[0], row[1], row[2] = world.now_s, world.running, world.waiting
    row[3], row[4] = world.held, limit
    row[5], row[6] = world.kv_usage / count, world.busy / count
