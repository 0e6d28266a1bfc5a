"""How many requests a replica runs, compiled: what `Throttle` counts.

What only serves to forecast waits is left out. The limit is decided by the object itself.
"""

from __future__ import annotations

import math

from mileage.control.throttle import Throttle
from mileage.sim.fast.jit import compiled, inlined, jit
from mileage.sim.fast.layout import NONE, Record, Records

__all__ = ["ended", "first_token", "has_room", "sample", "started"]

_pass = compiled(Throttle._pass)


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
    else:
        throttle.prefill_tokens = throttle._kv_tokens = 0.0


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
