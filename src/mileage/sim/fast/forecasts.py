"""What a request will wait and take, compiled: where those that would be late are refused.

`services` has of each replica what `ServiceForecast` has, and what `Speed` says: NaN while it says
nothing. The world's record stands for the pool of `WaitForecast` and `Pool`.
"""

from __future__ import annotations

import math

from mileage.control import forecast
from mileage.control.forecast import LEARN_APART_S, SAMPLES_MIN, TIME_MAX_S, WaitForecast
from mileage.control.governor import MARGIN
from mileage.sim.fast.jit import compiled, inlined, jit
from mileage.sim.fast.layout import Record, Records

__all__ = ["late_at_arrival", "learn_service", "wait_forecast_s", "would_be_late"]

_regressors = compiled(forecast._regressors)
_dot = compiled(forecast._dot)
_row = compiled(forecast._row)
_learned = compiled(forecast.learned, _regressors=_regressors, _dot=_dot, _row=_row)
_predicted_s = compiled(forecast.predicted_s, _regressors=_regressors, _dot=_dot)
_residual_of = compiled(forecast.residual_of)
_wait_s = compiled(WaitForecast.wait_s)


@inlined
def learn_service(service: Record, sequence: Record, now_s: float) -> None:
    """A first token came."""
    took_s = now_s - sequence.started_s
    if now_s < service.due_s or not 0.0 <= took_s <= TIME_MAX_S:
        return
    service.due_s = now_s + LEARN_APART_S
    theta = (service.t0, service.t1, service.t2, service.t3)
    p = (
        (service.p00, service.p01, service.p02, service.p03),
        (service.p10, service.p11, service.p12, service.p13),
        (service.p20, service.p21, service.p22, service.p23),
        (service.p30, service.p31, service.p32, service.p33),
    )
    theta, p, error = _learned(
        theta,
        p,
        service.samples >= SAMPLES_MIN,
        sequence.prompt,
        sequence.ahead_tokens,
        float(sequence.others),
        took_s,
    )
    service.t0, service.t1, service.t2, service.t3 = theta
    service.p00, service.p01, service.p02, service.p03 = p[0]
    service.p10, service.p11, service.p12, service.p13 = p[1]
    service.p20, service.p21, service.p22, service.p23 = p[2]
    service.p30, service.p31, service.p32, service.p33 = p[3]
    service.samples += 1
    service.residual_ratio = _residual_of(service.residual_ratio, error, service.samples)


@jit
def _service_s(service: Record, throttle: Record, prompt_tokens: float) -> float:
    """Seconds from its dispatch to its first token, on the safe side; 0 while not known."""
    if service.samples < SAMPLES_MIN:
        return 0.0
    others = min(throttle.in_flight, throttle.own_limit - 1)
    theta = (service.t0, service.t1, service.t2, service.t3)
    expected_s = _predicted_s(theta, prompt_tokens, throttle.prefill_tokens, float(others))
    return float(expected_s * (1.0 + service.residual_ratio))


@jit
def would_be_late(world: Record, service: Record, throttle: Record, sequence: Record) -> bool:
    """Whether the request would be late if it were sent to that replica now."""
    late_s = world.now_s - sequence.expires_s
    if late_s > 0.0 or not world.early:
        return bool(late_s > 0.0)
    if throttle.in_flight:
        late_s += _service_s(service, throttle, sequence.prompt)
    return bool(late_s > 0.0)


@inlined
def wait_forecast_s(world: Record, throttling: Records, services: Records) -> float:
    """Seconds that one more request would be held."""
    rate, cost, in_flight = 0.0, 0.0, 0
    for at in range(len(throttling)):
        throttle, speed = throttling[at], services[at].speed
        if math.isnan(speed):
            rate += math.inf  # nobody is refused for a guess
        else:
            rate += speed * throttle.own_limit
        cost += throttle.cost
        in_flight += throttle.in_flight
    turn_s = 0.0
    if in_flight:
        turn_s = _wait_s(world, cost / in_flight, rate)
    before = world.held_work if world.held else 0.0
    return float(_wait_s(world, before, rate) + turn_s)


@inlined
def late_at_arrival(world: Record, service: Record, throttle: Record, sequence: Record) -> bool:
    """Whether a request that is to be held would be late; it knows its forecast."""
    first_s = sequence.forecast_s + MARGIN * world.residual_s
    first_s += _service_s(service, throttle, sequence.prompt)
    return bool(world.now_s + first_s - sequence.expires_s > 0.0)
