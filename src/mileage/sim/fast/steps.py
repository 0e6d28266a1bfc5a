"""Step mathematics, compiled: the functions of `step_math`, and the lines of a table in an array.

A line lies in it as kv_s, pair_s, request_s, then decode_s, then mixed_s.
"""

from __future__ import annotations

from mileage.sim import step_math
from mileage.sim.fast.jit import compiled, inlined
from mileage.sim.fast.layout import Floats, Record

__all__ = [
    "blocks_of",
    "pairs_of",
    "plan_decode",
    "plan_mixed",
    "steps_until",
    "stretch_s",
]

NEVER = step_math.NEVER

blocks_of = compiled(step_math.blocks_of)
pairs_of = compiled(step_math.pairs_of)
_series_s = compiled(step_math.series_s)
_turn_of = compiled(step_math.turn_of)
_stretch_of = compiled(step_math.stretch_of, turn_of=_turn_of)
_mixed_line_s = compiled(step_math.mixed_line_s)
stretch_s = compiled(step_math.stretch_s, series_s=_series_s)
_steps_to_reach = compiled(step_math.steps_to_reach, series_s=_series_s)
steps_until = compiled(
    step_math.steps_until, series_s=_series_s, stretch_s=stretch_s, steps_to_reach=_steps_to_reach
)


@inlined
def plan_mixed(engine: Record, tables: Floats, context: int, tokens: int, pairs: float) -> None:
    """The next step computes so many tokens of prompts beside those that decode."""
    count, at, time_s = engine.count, engine.table, 0.0
    for _ in range(engine.lines):
        mixed_s = tables[at + 3 + engine.decode_size + count + tokens]
        line_s = _mixed_line_s(
            mixed_s, tables[at], tables[at + 1], tables[at + 2], count, context, pairs
        )
        if line_s > time_s:
            time_s = line_s
        at += 3 + engine.decode_size + engine.mixed_size
    engine.c1, engine.d1, engine.turn, engine.c2, engine.d2 = time_s, 0.0, NEVER, 0.0, 0.0


@inlined
def plan_decode(engine: Record, tables: Floats, context: int) -> None:
    """The next steps only decode."""
    count, at = engine.count, engine.table
    c1, d1 = tables[at + 3 + count] + tables[at] * context, tables[at] * count
    if engine.lines == 1:
        engine.c1, engine.d1, engine.turn, engine.c2, engine.d2 = c1, d1, NEVER, 0.0, 0.0
        return
    at += 3 + engine.decode_size + engine.mixed_size
    c2, d2 = tables[at + 3 + count] + tables[at] * context, tables[at] * count
    c1, d1, turn, c2, d2 = _stretch_of(c1, d1, c2, d2)
    engine.c1, engine.d1, engine.turn, engine.c2, engine.d2 = c1, d1, turn, c2, d2
