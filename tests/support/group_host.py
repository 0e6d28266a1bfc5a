"""A host for any simulated engine, also a group: requests come, and some of their clients leave."""

from __future__ import annotations

import math
from collections.abc import Iterable
from random import Random

from mileage.costmodel.step_table import StepTable
from mileage.sim.engine_config import EngineConfig
from mileage.sim.make_engine import AnyEngine, make_engine
from mileage.sim.sequence import GONE, Sequence

__all__ = ["run_any"]


def run_any(
    config: EngineConfig,
    table: StepTable,
    arrivals: Iterable[tuple[float, Sequence]],
    leaves: Iterable[tuple[float, Sequence]] = (),
) -> tuple[AnyEngine, list[Sequence], list[Sequence]]:
    """The engine after all have ended; whose first token it told, and who was complete."""
    engine = make_engine(config, table, Random(1))
    events = [(at, 0, each) for at, each in arrivals] + [(at, 1, each) for at, each in leaves]
    events.sort(key=lambda event: event[:2])
    first: list[Sequence] = []
    done: list[Sequence] = []
    now_s = 0.0
    while events or engine.due_s < math.inf:
        if events and events[0][0] <= engine.due_s:
            now_s, what, sequence = events.pop(0)
            if what == 0:
                assert engine.fits(sequence)
                engine.add(sequence, now_s)
            elif sequence.state != GONE:
                engine.abort(sequence, now_s)
            continue
        assert engine.due_s >= now_s
        now_s = engine.due_s
        engine.finish_steps(now_s)
        first += engine.first
        done += engine.done
        engine.begin(now_s)
        for member in engine.members:
            member.pool.check()
    return engine, first, done
