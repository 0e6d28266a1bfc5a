"""The requests on their way through the controller, compiled: sent, held, refused, at their end."""

from __future__ import annotations

import math

from mileage.control.forecast import WaitForecast
from mileage.control.pool import Pool
from mileage.control.replicas import Route
from mileage.policy.load import work_of as _python_work_of
from mileage.sim.fast import engine, forecasts, loads, planning, throttles
from mileage.sim.fast.jit import compiled, inlined, jit
from mileage.sim.fast.layout import NONE, Floats, Ints, Record, Records
from mileage.sim.outcome import FAILED, OK, REJECTED

__all__ = ["arrive", "expire", "go_on", "place", "step", "tell", "wake"]

_work_of = compiled(_python_work_of)
_cost_of = compiled(Pool.cost_of)
_answered = compiled(Route.answered)
_waited = compiled(WaitForecast.waited)

# Compiled code knows functions by their global names.
engine_add, engine_begin, engine_finish, engine_fits = (
    engine.add,
    planning.begin,
    engine.finish,
    engine.fits,
)
load_choose, load_finished, load_left, load_started = (
    loads.choose,
    loads.finished,
    loads.left,
    loads.started,
)
throttle_ended, throttle_first, throttle_room, throttle_sample, throttle_started = (
    throttles.ended,
    throttles.first_token,
    throttles.has_room,
    throttles.sample,
    throttles.started,
)
late_at_arrival, learn_service, wait_forecast_s, would_be_late = (
    forecasts.late_at_arrival,
    forecasts.learn_service,
    forecasts.wait_forecast_s,
    forecasts.would_be_late,
)


# --- one request ----------------------------------------------------------------------------------


@inlined
def arrive(world: Record, seqs: Records) -> int:
    """The next request comes; which one."""
    index = world.arrival
    world.arrival += 1
    world.open += 1
    world.in_flight += 1
    sequence = seqs[index]
    sequence.flying = True
    sequence.work = _work_of(sequence.prompt, world.output_tokens)
    sequence.cost = _cost_of(world, sequence.prompt, world.output_tokens)
    sequence.expires_s = sequence.arrived_s + world.queue_wait_s
    return int(index)


@inlined
def place(
    world: Record,
    engines: Records,
    replicas: Records,
    throttling: Records,
    services: Records,
    seqs: Records,
    draws: Floats,
    preferred: Ints,
    index: int,
) -> None:
    """Send the request, hold it, or refuse it."""
    sequence, at = seqs[index], 0
    if world.routes:
        work = sequence.work
        at = load_choose(world, replicas, draws, preferred[index], work, world.now_s)
    if world.acts:
        throttle = throttling[at]
        throttle.arrivals += 1
        if (
            world.held
            or throttle.prefill_tokens + sequence.prompt > throttle.calm_tokens
            or not throttle_room(throttle, sequence.prompt)
        ):
            at = _govern(world, throttling, services, seqs, index, at)
            if at == NONE:
                return
    _send(world, engines, replicas, throttling, services, seqs, index, at)


@inlined
def _govern(
    world: Record,
    throttling: Records,
    services: Records,
    seqs: Records,
    index: int,
    at: int,
) -> int:
    """The replica that the request is sent to; NONE: it is held, or refused."""
    sequence, late = seqs[index], False
    if not world.held:
        for place in range(-1, len(throttling)):
            other = at if place < 0 else place
            if throttle_room(throttling[other], sequence.prompt):
                late = would_be_late(world, services[other], throttling[other], sequence)
                if not late:
                    return other
    if world.early and not late:
        sequence.forecast_s = wait_forecast_s(world, throttling, services)
        late = late_at_arrival(world, services[at], throttling[at], sequence)
    if late:
        world.late += 1
        _refuse(world, seqs, index)
    elif world.held >= world.queue_max:
        world.full += 1
        _refuse(world, seqs, index)
    else:
        _hold(world, seqs, index)
    return NONE


@inlined
def _hold(world: Record, seqs: Records, index: int) -> None:
    sequence = seqs[index]
    sequence.following = NONE
    if world.held:
        seqs[world.held_last].following = index
    else:
        world.held_first = index
        world.held_work = 0.0
    world.held_last = index
    world.held += 1
    world.held_work += sequence.cost
    wake(world, seqs)


@jit
def _refuse(world: Record, seqs: Records, index: int) -> None:
    sequence = seqs[index]
    sequence.flying = False
    world.in_flight -= 1
    _close(world, sequence, REJECTED)


@jit
def _close(world: Record, sequence: Record, status: int) -> None:
    sequence.status = status
    sequence.e2e_s = world.now_s - sequence.arrived_s
    world.last_s = world.now_s
    world.open -= 1


@jit
def _send(
    world: Record,
    engines: Records,
    replicas: Records,
    throttling: Records,
    services: Records,
    seqs: Records,
    index: int,
    at: int,
) -> None:
    """Send the request to a replica. What can never fit there fails, of which the controller is
    told after all else that happens at this time."""
    sequence, now_s = seqs[index], world.now_s
    sequence.replica, sequence.started_s = at, now_s
    if world.routes:
        load_started(replicas[at], sequence.work, now_s)
    if world.acts:
        throttle_started(throttling[at], sequence, now_s)
    if not engine_fits(engines[at], sequence):
        _close(world, sequence, FAILED)
        sequence.following = NONE
        if world.tell_first == NONE:
            world.tell_first = index
        else:
            seqs[world.tell_last].following = index
        world.tell_last = index
    elif engine_add(engines[at], seqs, index, now_s):
        world.tickets += 1
        engines[at].ticket = world.tickets


@inlined
def tell(
    world: Record,
    engines: Records,
    replicas: Records,
    throttling: Records,
    services: Records,
    seqs: Records,
) -> None:
    """The controller hears of a request that failed."""
    index = world.tell_first
    sequence = seqs[index]
    world.tell_first = sequence.following
    if not sequence.flying:
        return
    sequence.flying = False
    world.in_flight -= 1
    at = sequence.replica
    if world.routes:
        load_left(replicas[at], sequence.work, world.now_s)
    if world.acts:
        throttle_ended(throttling[at], sequence, world.now_s)
        _pump(world, engines, replicas, throttling, services, seqs, at)
    sequence.replica = NONE


@inlined
def step(
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
    at: int,
) -> None:
    """The steps of an engine are over; the next ones begin."""
    its, now_s = engines[at], world.now_s
    engine_finish(its, seqs, ints, owns, times, past, scratch, now_s)
    if world.acts:
        for place in range(its.firsts_at, its.firsts_at + its.firsts_size):
            sequence = seqs[ints[place]]
            if sequence.flying:
                throttle_first(throttling[at], sequence, now_s)
                if world.early:
                    learn_service(services[at], sequence, now_s)
                if world.held and throttling[at].bound != NONE:
                    _pump(world, engines, replicas, throttling, services, seqs, at)
    for place in range(its.dones_at, its.dones_at + its.dones_size):
        sequence = seqs[ints[place]]
        _close(world, sequence, OK)
        if not sequence.flying:
            continue
        sequence.flying = False
        world.in_flight -= 1
        if world.routes:
            load_finished(replicas[at], learnt[at], sequence, now_s)
        _answered(world, sequence.output_tokens)
        if world.acts:
            throttle = throttling[at]
            throttle.done += _cost_of(world, sequence.prompt, sequence.output_tokens)
            throttle_sample(throttle, samples[at], sequence, now_s)
            throttle_ended(throttle, sequence, now_s)
            _pump(world, engines, replicas, throttling, services, seqs, at)
    world.spent = engine_begin(its, seqs, ints, owns, tables, times, past, world.spent, now_s)
    if its.due_s < math.inf:
        world.tickets += 1
        its.ticket = world.tickets


# --- what waits -----------------------------------------------------------------------------------


@jit
def _pump(
    world: Record,
    engines: Records,
    replicas: Records,
    throttling: Records,
    services: Records,
    seqs: Records,
    at: int,
) -> None:
    """Send what is held to a replica that may have room now."""
    throttle = throttling[at]
    while world.held and throttle.in_flight < throttle.own_limit:
        index = world.held_first
        sequence = seqs[index]
        if would_be_late(world, services[at], throttle, sequence):
            _release(world, sequence)
            world.late += 1
            _refuse(world, seqs, index)
        elif throttle_room(throttle, sequence.prompt):
            _release(world, sequence)
            if world.early:
                _waited(world, sequence.forecast_s, world.now_s - sequence.arrived_s)
            _send(world, engines, replicas, throttling, services, seqs, index, at)
        else:
            return


@jit
def _release(world: Record, sequence: Record) -> None:
    """The first of those that are held is held no longer."""
    world.held_first = sequence.following
    world.held -= 1
    world.held_work -= sequence.cost


@inlined
def expire(world: Record, seqs: Records) -> None:
    """Refuse what has been held too long."""
    while world.held and seqs[world.held_first].expires_s <= world.now_s:
        index = world.held_first
        _release(world, seqs[index])
        world.late += 1
        _refuse(world, seqs, index)


@inlined
def go_on(
    world: Record,
    engines: Records,
    replicas: Records,
    throttling: Records,
    services: Records,
    seqs: Records,
) -> None:
    """Send what can be sent of what is held, and refuse what has been held too long."""
    if world.held:
        for at in range(len(throttling)):
            _pump(world, engines, replicas, throttling, services, seqs, at)
        expire(world, seqs)
    wake(world, seqs)


@jit
def wake(world: Record, seqs: Records) -> None:
    """Ask to be woken when something is next due, unless that was asked before."""
    if not world.held:
        return
    due_s = min(max(world.now_s, world.due_s), seqs[world.held_first].expires_s)
    if world.now_s < world.asked_s <= due_s:
        return
    world.asked_s = due_s
    if due_s < world.wake_s:
        world.wake_s = max(world.now_s, due_s)
