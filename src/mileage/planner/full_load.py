"""Costs of a set-up at full load: of the highest rate within the goal, or of full batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from mileage.core.errors import ConfigError
from mileage.planner.built import Builder, Built
from mileage.planner.candidate import Candidate
from mileage.planner.difference import Cost
from mileage.planner.evaluation import World, evaluate
from mileage.planner.figures import Figures
from mileage.planner.traffic import Traffic
from mileage.workload.columns import TraceColumns

__all__ = ["batch_cost", "rate_cost"]

_SCALE_MAX: Final = 256.0
_TOLERANCE: Final = 0.02
_HOUR_S: Final = 3600.0
_MTOK: Final = 1e6


def rate_cost(candidate: Candidate, builder: Builder, traffic: Traffic, world: World) -> Cost:
    """By simulation: of a token at the highest rate of the trace that keeps the goal, to 2 %.

    Above a highest rate none is taken to be kept. No figure where the set-up cannot be built, keeps
    the goal at no rate down to 1/256 of the trace's, or at all of them up to 256 times it.
    """
    try:
        built = builder.build(candidate)
    except ConfigError as error:
        return Cost(problem=str(error))
    adapters = tuple(each.adapter for each in traffic.requests("lora")) if traffic.adapters else ()
    kept: dict[float, Figures] = {}

    def keeps(scale: float) -> bool:
        figures = evaluate(built, _faster(traffic, adapters, scale), world)
        if figures.feasible and figures.problem is None:
            kept[scale] = figures
        return scale in kept

    usd = _usd_per_hour(built, world)
    low, high = _bracket(keeps)
    if high == math.inf:
        expected = f"no rate up to {_SCALE_MAX:g} times the trace's is too high for it"
        return Cost(usd_per_hour=usd, problem=expected)
    if low == 0.0:
        return Cost(usd_per_hour=usd, problem="the goal is kept at no rate")
    while high / low > 1.0 + _TOLERANCE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    best = kept[low]
    return Cost(
        usd_per_hour=usd, usd_per_mtok=best.usd_per_mtok, gpu_h_per_mtok=best.gpu_h_per_mtok
    )


def batch_cost(
    candidate: Candidate, builder: Builder, world: World, *, prompt_tokens: int, output_tokens: int
) -> Cost:
    """By the step-time model alone: of a token where as many requests run as there is room for, all
    of one size, and no target is looked at.

    A batch of n requests takes n * prompt_tokens / step_tokens_max steps that are full of prompts,
    and output_tokens steps that decode. No figure for what only a simulation tells: speculation,
    disaggregation, sharing, and what a prefix cache finds.
    """
    for key in ("speculation", "disaggregation", "sharing"):
        if getattr(candidate, key) is not None:
            return Cost(problem=f"{key}: only a simulation tells")
    try:
        built = builder.build(candidate)
    except ConfigError as error:
        return Cost(problem=str(error))
    engine, table = built.engine, built.table
    each = prompt_tokens + output_tokens
    running = min(engine.running_max, built.kv_tokens // each)
    usd = _usd_per_hour(built, world)
    if running < 1:
        expected = f"room for a request of {each:,} tokens: there is room for {built.kv_tokens:,}"
        return Cost(usd_per_hour=usd, problem=expected)
    step = engine.step_tokens_max
    decode_s = table.step_s(running, running * (prompt_tokens + output_tokens // 2))
    prefill_s = table.step_s(0, 0, step, step * (prompt_tokens + 1) / 2.0)
    batch_s = output_tokens * decode_s + running * prompt_tokens / step * prefill_s
    tokens_per_s = candidate.replicas * running * output_tokens / batch_s
    gpu_h = candidate.gpus() * _MTOK / (tokens_per_s * _HOUR_S)
    price = world.usd_per_gpu_hour.get(candidate.gpu)
    return Cost(
        usd_per_hour=usd,
        usd_per_mtok=None if price is None else price * gpu_h,
        gpu_h_per_mtok=gpu_h,
    )


def _bracket(keeps: Callable[[float], bool]) -> tuple[float, float]:
    """A scale that is kept and twice it, which is not; infinite or 0 where there is none."""
    scale = 1.0
    if keeps(scale):
        while keeps(2.0 * scale):
            scale *= 2.0
            if scale >= _SCALE_MAX:
                return scale, math.inf
        return scale, 2.0 * scale
    while not keeps(scale / 2.0):
        scale /= 2.0
        if scale <= 1.0 / _SCALE_MAX:
            return 0.0, scale
    return scale / 2.0, scale


def _faster(traffic: Traffic, adapters: tuple[str | None, ...], scale: float) -> Traffic:
    """The same requests at `scale` times the rate."""
    columns = traffic.columns
    return Traffic(
        TraceColumns(
            arrived_s=columns.arrived_s / scale,
            prompt_tokens=columns.prompt_tokens,
            output_tokens=columns.output_tokens,
            offsets=columns.offsets,
            blocks=columns.blocks,
            block_tokens=columns.block_tokens,
        ),
        adapters,
    )


def _usd_per_hour(built: Built, world: World) -> float | None:
    price = world.usd_per_gpu_hour.get(built.candidate.gpu)
    return None if price is None else price * built.candidate.gpus()
