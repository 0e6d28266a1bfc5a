"""A host for one simulated engine: adds requests when they come, and does nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from random import Random

from mileage.costmodel.step_table import StepLine, StepTable
from mileage.sim.engine import Engine
from mileage.sim.engine_config import EngineConfig
from mileage.sim.make_engine import make_single
from mileage.sim.sequence import Sequence

__all__ = ["linear_table", "run_engine"]


def linear_table(
    *lines: tuple[float, float, float, float, float],
    requests_max: int = 64,
    tokens_max: int = 512,
) -> StepTable:
    """Lines of (base_s, request_s, kv_s, prefill_token_s, pair_s)."""
    return StepTable(
        lines=tuple(
            StepLine(
                decode_s=tuple(base + request * n for n in range(requests_max + 1)),
                mixed_s=tuple(base + token * n for n in range(tokens_max + 1)),
                kv_s=kv,
                pair_s=pair,
                request_s=request,
            )
            for base, request, kv, token, pair in lines
        )
    )


def run_engine(
    config: EngineConfig,
    table: StepTable,
    requests: Iterable[tuple[float, Sequence]],
    *,
    seed: int = 1,
    check: bool = False,
    ended: Callable[[Sequence], object] | None = None,
    make: Callable[[EngineConfig, StepTable, Random], Engine] = make_single,
) -> Engine:
    """The engine after the last request; they are given by (arrival, sequence), in order."""
    engine = make(config, table, Random(seed))
    coming = iter(requests)
    following = next(coming, None)
    while following is not None or engine.due_s < math.inf:
        if following is not None and following[0] <= engine.due_s:
            engine.add(following[1], following[0])
            following = next(coming, None)
            continue
        now_s = engine.due_s
        engine.finish_steps(now_s)
        if ended is not None:
            for sequence in engine.done:
                ended(sequence)
        engine.begin(now_s)
        if check:
            engine.pool.check()
    return engine
