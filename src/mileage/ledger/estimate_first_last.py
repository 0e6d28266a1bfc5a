"""Estimate from first and last tokens: requests as flows, a window at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mileage.costmodel.plane import Features
from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.columns import Floats
from mileage.ledger.estimate import Estimate
from mileage.ledger.flights import Flights
from mileage.ledger.flow_fit import FlowFit
from mileage.ledger.flows import Flows, flows_of, pace_of, prompt_spans
from mileage.ledger.fluid import Fluid
from mileage.ledger.step_shares import Ratios

__all__ = ["estimate_first_last"]

_SLOTS_PER_WINDOW: Final = 500
_BEFORE_S, _AFTER_S = 40.0, 20.0
_CHUNK_TOKENS: Final = 2048.0
"""A prompt of no more is computed in one step, as far as is known."""
_SPAN_MIN_S: Final = 1e-3
_PRIOR_DECODING: Final = 5.0
_TINY: Final = 1e-12
_ERROR_RATIO, _ERROR_STEPS = 0.35, 0.35
"""Measured against the steps of simulated engines: see docs/explanation/attribution.md."""
_COUNTED_MAX: Final = 2.0
_STALL_GAPS_MIN: Final = 8
_STALL_MIN_S, _STALL_RATIO, _STALL_PART = 1.0, 6.0, 0.01


@dataclass(frozen=True, slots=True)
class _Curves:
    """Functions of time over all requests, and of each when its prompt began to be computed."""

    fluid: Fluid
    pace: Floats
    decoding: Floats
    present: Floats
    """Those that decode, and those whose prompt is computed."""
    kv_tokens: Floats
    """Of those that decode."""
    held_tokens: Floats
    """Of all that are present."""
    prefill: Floats
    """Integral of prompt tokens computed."""
    began_s: Floats


def estimate_first_last(
    flights: Flights,
    start_at_utc_ns: int,
    length_s: float,
    fit: FlowFit,
    config: AttributionConfig,
    ratios: Ratios,
    step_count: int | None = None,
) -> Estimate:
    """What each request had of the window, weighed as `weigh_uses` does it for steps, but over the
    window as a whole: when in it each prompt was computed is known too little to share moment by
    moment. What a step costs is learned from how fast answers came beside how many others.
    `step_count`: steps of the engine in the window, where it tells them.
    """
    count = len(flights)
    flows = fit.with_past(flows_of(flights), start_at_utc_ns, _BEFORE_S)
    fluid = Fluid(-_BEFORE_S, length_s + _AFTER_S, length_s / _SLOTS_PER_WINDOW)
    pace = pace_of(fluid, flows)
    spans = prompt_spans(fluid, flows, pace)
    exact = not bool(np.isnan(flights.cached_tokens).all())
    flows = fit.time_prompts(flows, spans, length_s, exact=exact)
    curves = _curves(fluid, flows, pace, spans.began_s)
    fit.learn(fluid, flows, curves.decoding, curves.kv_tokens, curves.prefill, length_s)
    plane = fit.plane or _prior(config.decode_cost_tokens)
    if step_count is not None:
        plane = _with_steps(plane, curves, length_s, step_count)
    prompt, answer = _work(curves, flows, plane, length_s, count)
    held_prompt, held_answer = _held(curves, flows, length_s, count)
    total, held = float((prompt + answer).sum()), float((held_prompt + held_answer).sum())
    computing, memory, interconnect = ratios
    # Activations are those of the tokens that are computed.
    work, kept = (computing + interconnect) / max(total, _TINY), memory / max(held, _TINY)
    prefill = work * prompt + kept * held_prompt
    paced = flows.steps[:count] > 0.0
    span_s = (flows.end_s - flows.first_s)[:count][paced]
    step_s = float(np.median(span_s / flows.steps[:count][paced])) if paced.any() else length_s
    return Estimate(
        weights=prefill + work * answer + kept * held_answer,
        prefill=prefill,
        recomputed=np.zeros(count),
        error_ratio=1.0 if fit.plane is None else _ERROR_RATIO,
        error_s=_ERROR_STEPS * step_s,
        saturated=fit.waits or _stalls(flights),
    )


def _stalls(flights: Flights) -> bool:
    """Answers stood still for much longer than prompts of others explain: they were preempted."""
    gaps_s = flights.stall_s[flights.stall_s > 0.0]
    if len(gaps_s) < _STALL_GAPS_MIN:
        return False
    usual_s = max(_STALL_MIN_S, _STALL_RATIO * float(np.median(gaps_s)))
    return bool((gaps_s > usual_s).sum() >= max(1.0, _STALL_PART * len(gaps_s)))


def _with_steps(plane: Features, curves: _Curves, length_s: float, step_count: int) -> Features:
    """The fixed part of the steps that the engine counted, over those that are seen."""
    fluid = curves.fluid
    paced = fluid.integral(curves.pace)
    seen = float(fluid.between(paced, np.zeros(1), np.full(1, length_s))[0])
    ratio = min(_COUNTED_MAX, step_count / seen) if seen >= 1.0 else 1.0
    return plane[0] * ratio, plane[1], plane[2], plane[3]


def _prior(decode_cost_tokens: float) -> Features:
    """In prompt tokens, of an engine of which nothing is known: most of a step is there for all."""
    fixed = 0.8 * _PRIOR_DECODING * decode_cost_tokens
    return fixed, 0.2 * decode_cost_tokens, 0.0, 1.0


def _curves(fluid: Fluid, flows: Flows, pace: Floats, began_s: Floats) -> _Curves:
    ones = np.ones(len(flows.start_s))
    first_s, end_s = flows.first_s, flows.end_s
    decoding = fluid.levels(first_s, end_s, ones)
    span_s = np.maximum(first_s - began_s, _SPAN_MIN_S)
    began_s = first_s - span_s
    whole = flows.prompt_tokens + flows.steps
    kv = fluid.steps(
        np.concatenate((first_s, end_s)), np.concatenate((flows.prompt_tokens, -whole))
    )
    growing = flows.steps / np.maximum(end_s - first_s, _SPAN_MIN_S)
    kv = np.maximum(0.0, kv + fluid.integral(fluid.levels(first_s, end_s, growing))[:-1])
    return _Curves(
        fluid=fluid,
        pace=pace,
        decoding=decoding,
        present=decoding + fluid.levels(began_s, first_s, ones),
        kv_tokens=kv,
        held_tokens=kv + fluid.levels(began_s, first_s, _held_by_prompt(flows)),
        prefill=fluid.integral(fluid.levels(began_s, first_s, flows.uncached_tokens / span_s)),
        began_s=began_s,
    )


def _held_by_prompt(flows: Flows) -> Floats:
    """Tokens that a prompt holds while it is computed, on average: each part in its step."""
    uncached = flows.uncached_tokens
    later = 0.5 * (1.0 - np.minimum(1.0, _CHUNK_TOKENS / np.maximum(uncached, 1.0)))
    held: Floats = flows.prompt_tokens - later * uncached
    return held


def _work(
    curves: _Curves, flows: Flows, plane: Features, length_s: float, count: int
) -> tuple[Floats, Floats]:
    """What prompts and answers cost in the window, in seconds of the model."""
    fluid = curves.fluid
    start_s, decode_s, kv_s, prefill_s = plane
    # The fixed part of each step in equal parts for all that are in it.
    fixed = fluid.integral(start_s * curves.pace / np.maximum(curves.present, 0.5))
    began_s, first_s, end_s = curves.began_s[:count], flows.first_s[:count], flows.end_s[:count]
    part = _within(began_s, first_s, length_s) / np.maximum(first_s - began_s, _SPAN_MIN_S)
    prompt = prefill_s * flows.uncached_tokens[:count] * part
    prompt = prompt + fluid.between(fixed, *_clipped(began_s, first_s, length_s))
    tokens, context = _decoded(curves, flows, length_s, count)
    answer = tokens * (decode_s + kv_s * context)
    answer = answer + fluid.between(fixed, *_clipped(first_s, end_s, length_s))
    return prompt, answer


def _held(curves: _Curves, flows: Flows, length_s: float, count: int) -> tuple[Floats, Floats]:
    """Seconds of the window by the part of the KV cache in use that each one holds."""
    fluid, held = curves.fluid, curves.held_tokens
    each = fluid.integral(np.where(held > 0.5, 1.0 / np.maximum(held, 0.5), 0.0))
    first_s, end_s = flows.first_s[:count], flows.end_s[:count]
    _, context = _decoded(curves, flows, length_s, count)
    prompt = fluid.between(each, *_clipped(curves.began_s[:count], first_s, length_s))
    answer = fluid.between(each, *_clipped(first_s, end_s, length_s))
    return prompt * _held_by_prompt(flows)[:count], answer * context


def _decoded(curves: _Curves, flows: Flows, length_s: float, count: int) -> tuple[Floats, Floats]:
    """Tokens that each one decoded in the window, and its mean context meanwhile."""
    fluid, paced = curves.fluid, curves.fluid.integral(curves.pace)
    first_s, end_s = flows.first_s[:count], flows.end_s[:count]
    made = np.maximum(fluid.between(paced, first_s, end_s), _TINY)
    each = flows.steps[:count] / made
    begin_s, until_s = _clipped(first_s, end_s, length_s)
    tokens = np.minimum(flows.steps[:count], fluid.between(paced, begin_s, until_s) * each)
    before = np.minimum(flows.steps[:count], fluid.between(paced, first_s, begin_s) * each)
    return tokens, flows.prompt_tokens[:count] + before + 0.5 * tokens


def _clipped(begin_s: Floats, end_s: Floats, length_s: float) -> tuple[Floats, Floats]:
    return np.clip(begin_s, 0.0, length_s), np.clip(end_s, 0.0, length_s)


def _within(begin_s: Floats, end_s: Floats, length_s: float) -> Floats:
    begin, end = _clipped(begin_s, end_s, length_s)
    within: Floats = end - begin
    return within
