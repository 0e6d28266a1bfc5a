"""How many requests a replica runs, compiled: what `Throttle` counts.

A static limit is decided here, too; others by the policies' own objects.
"""

from __future__ import annotations

import math

from mileage.control import own_limit as own
from mileage.control.throttle import Throttle
from mileage.policy.limits import bounds, static
from mileage.sim.fast.jit import compiled, inlined, jit
from mileage.sim.fast.layout import NONE, Record, Records

__all__ = ["decide_static", "ended", "first_token", "has_room", "pass_time", "sample", "started"]

_pass = compiled(Throttle._pass)
_ceiling_of = compiled(bounds.ceiling_of)
_static_limit = compiled(static.static_limit, clamped=compiled(bounds.clamped))
_within = compiled(own.within)
_own_limit = compiled(own.own_limit)


@jit
def has_room(throttle: Record, prompt_tokens: float) -> bool:
    """Whether a request with such a context may be sent now."""
    if throttle.in_flight >= throttle.own_limit:
        return False
    if throttle.bound == NONE or not throttle.prefill_tokens:
        return True
    return bool(throttle.prefill_tokens + prompt_tokens <= throttle.bound)


@jit
def started(throttle: Record, sequence: Record, now_s: float) -> None:
    """The request is sent."""
    _pass(throttle, now_s)
    sequence.others, sequence.ahead_tokens = throttle.in_flight, throttle.prefill_tokens
    throttle.cost += sequence.cost
    throttle.in_flight += 1
    throttle._peak = max(throttle._peak, throttle.in_flight)
    throttle._kv_tokens += sequence.prompt
    throttle._prefilling += 1
    throttle.prefill_tokens += sequence.prompt


@inlined
def first_token(throttle: Record, sequence: Record, now_s: float) -> None:
    """Its first token came."""
    _pass(throttle, now_s)
    throttle._prefilling -= 1
    throttle.prefill_tokens = max(0.0, throttle.prefill_tokens - sequence.prompt)
    throttle._prefilled += sequence.prompt
    sequence.mark_in_flight_s = throttle._in_flight_s
    sequence.mark_kv_s = throttle._kv_s
    sequence.mark_prefilled = throttle._prefilled
    sequence.mark_decoding_s = throttle._decoding_s


@jit
def ended(throttle: Record, sequence: Record, now_s: float) -> None:
    """It is there no longer, however it ended."""
    _pass(throttle, now_s)
    throttle.in_flight -= 1
    if math.isnan(sequence.first_token_s):
        throttle._prefilling -= 1
        throttle.prefill_tokens -= sequence.prompt
    if throttle.in_flight:
        throttle._kv_tokens -= sequence.prompt
        throttle.cost -= sequence.cost
    else:
        throttle.prefill_tokens = throttle._kv_tokens = throttle.cost = 0.0


@inlined
def sample(throttle: Record, samples: Records, sequence: Record, now_s: float) -> None:
    """What the request shows, in the moment of its end; `samples` has those of this replica."""
    if throttle.samples == len(samples):
        return
    _pass(throttle, now_s)
    steps = sequence.output_tokens - 1
    first_s = sequence.first_token_s
    took_s = now_s - first_s
    if steps < 1 or took_s <= 0.0:
        return
    taken = samples[throttle.samples]
    throttle.samples += 1
    taken.steps, taken.took_s = steps, took_s
    taken.prompt_tokens, taken.output_tokens = sequence.prompt_tokens, sequence.output_tokens
    taken.ttft_s = first_s - sequence.arrived_s
    taken.service_ttft_s = first_s - sequence.started_s
    taken.itl_p99_s = sequence.itl_p99_s
    taken.in_flight_s = throttle._in_flight_s - sequence.mark_in_flight_s
    taken.kv_s = throttle._kv_s - sequence.mark_kv_s
    taken.prefilled = throttle._prefilled - sequence.mark_prefilled
    taken.decoding_s = throttle._decoding_s - sequence.mark_decoding_s


@inlined
def pass_time(throttling: Records, now_s: float) -> None:
    """A decision is due: what was counted until now is complete."""
    for at in range(len(throttling)):
        throttle = throttling[at]
        if now_s >= throttle.due_s and not _idle(throttle):
            _pass(throttle, now_s)


@jit
def _idle(throttle: Record) -> bool:
    """Nothing has happened here since the last decision."""
    return not (throttle._peak or throttle.arrivals or throttle.samples)


@inlined
def decide_static(world: Record, throttling: Records, views: Records, engines: Records) -> None:
    """Decide the limits of all replicas that are due, which never change but for their bounds."""
    now_s = world.now_s
    world.due_s = now_s + world.period_s
    for at in range(len(throttling)):
        throttle = throttling[at]
        if now_s < throttle.due_s or _idle(throttle):
            continue
        throttle.due_s = now_s + world.period_s
        throttle.arrivals = throttle.samples = 0
        throttle._peak = throttle.in_flight
        most = throttle.running_max
        if most == NONE:
            most = engines[at].running_max if views[at].known else 0
        ceiling = _ceiling_of(world.limit_max, most)
        limit = _static_limit(world.static, world.limit_min, ceiling)
        throttle.limit = _within(limit, world.limit_min, world.limit_max, most)
        throttle.own_limit = _own_limit(throttle.limit, most, world.in_time, 1.0)
