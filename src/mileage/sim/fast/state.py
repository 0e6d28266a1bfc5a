"""State: all records and arrays of a compiled simulation, as it begins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from mileage.core.errors import ConfigError
from mileage.costmodel.step_table import StepTable
from mileage.sim.fast.layout import (
    ENGINE,
    LOAD,
    NONE,
    SAMPLE,
    SEQUENCE,
    SERVICE,
    THROTTLE,
    VIEW,
    WORLD,
    Floats,
    Ints,
    Record,
    Records,
)
from mileage.sim.node import ReplicaSpec
from mileage.sim.outcome import FAILED
from mileage.sim.step_math import NEVER
from mileage.workload.columns import TraceColumns

__all__ = ["State"]

_LOG_STEPS: Final = 4096
_PAST_GAPS: Final = 1 << 16
_ROWS: Final = 4096
_SAMPLES: Final = 24
_HEAP_SPARE: Final = 16


class State:
    """The arguments of `kernel.run`, in its order: `arguments`."""

    def __init__(self, columns: TraceColumns, specs: Sequence[ReplicaSpec]) -> None:
        count, fleet = len(columns), len(specs)
        self.worlds: Records = np.zeros(1, WORLD)
        self.world: Record = self.worlds.view(np.recarray)[0]
        self.engines: Records = np.zeros(fleet, ENGINE)
        self.each_engine: Records = self.engines.view(np.recarray)
        self.loads: Records = np.zeros(fleet, LOAD)
        self.learnt: Records = np.zeros(fleet, LOAD)
        self.throttles: Records = np.zeros(fleet, THROTTLE)
        self.services: Records = np.zeros(fleet, SERVICE)
        self.samples: Records = np.zeros((fleet, _SAMPLES), SAMPLE)
        self.views: Records = np.zeros(fleet, VIEW)
        self.lasts: Records = np.zeros(fleet, VIEW)
        self.seqs: Records = np.zeros(count, SEQUENCE)
        self.rows: Floats = np.zeros((_ROWS, 7))
        self.draws: Floats = np.zeros(0)
        self.preferred: Ints = np.full(count, NONE)
        self.past: Floats = np.zeros(_PAST_GAPS)
        self.scratch: Floats = np.zeros(int(columns.output_tokens.max(initial=1)) + 1)
        _set_sequences(self.seqs, columns)
        units, different = _set_units(self.seqs, self.engines, columns, specs)
        self.owns = np.zeros(len(units), np.uint8)
        self.tables, tables = _tables(specs)
        parts = [units]
        for engine, spec, table in zip(self.each_engine, specs, tables, strict=True):
            _set_engine(engine, spec, table)
            engine.units = different if engine.caching else 0
            parts += _lists(engine, sum(map(len, parts)))
        self.ints: Ints = np.concatenate(parts)
        self.times: Floats = np.zeros(0)
        self.grow_log(_LOG_STEPS)

    @property
    def arguments(self) -> tuple[object, ...]:
        """Of the kernel."""
        return (
            self.worlds, self.engines, self.loads, self.learnt, self.throttles, self.services,
            self.samples, self.views, self.lasts, self.seqs, self.ints, self.owns, self.tables,
            self.times, self.past, self.scratch, self.draws, self.preferred, self.rows,
        )  # fmt: skip

    def grow_log(self, steps: int) -> None:
        """Every engine's log has room for so many steps."""
        times = np.zeros(len(self.engines) * steps)
        for at, engine in enumerate(self.each_engine):
            kept, begin = int(engine.times_kept), int(engine.times_at)
            times[at * steps : at * steps + kept] = self.times[begin : begin + kept]
            engine.times_at, engine.times_max = at * steps, steps
        self.times = times

    def grow(self) -> None:
        """Make room for the steps of any engine, and for the gaps of all that may be preempted."""
        steps = max(int(e.times_kept + e.planned) for e in self.each_engine)
        if steps > self.each_engine[0].times_max:
            self.grow_log(2 * steps)
            return
        live = np.flatnonzero((self.seqs["past"] > 0) & np.isnan(self.seqs["e2e_s"]))
        gaps = sum(
            int(e.past_sum + e.count * (e.steps + e.planned + 1) - e.first_sum + e.running)
            for e in self.each_engine
        )
        kept = int(self.seqs["past"][live].sum())
        past = np.zeros(2 * (2 * kept + gaps))
        spent = 0
        for index in live:
            begin, size = int(self.seqs[index]["past_at"]), int(self.seqs[index]["past"])
            past[spent : spent + size] = self.past[begin : begin + size]
            self.seqs[index]["past_at"] = spent
            spent += size
        self.past = past
        self.world.spent = spent


def _set_sequences(seqs: Records, columns: TraceColumns) -> None:
    for name in ("first_token_s", "last_token_s", "e2e_s", "itl_p99_s", "itl_mean_s"):
        seqs[name] = math.nan
    for name in ("cached_tokens", "order", "replica"):
        seqs[name] = NONE
    seqs["status"] = FAILED
    seqs["arrived_s"] = columns.arrived_s
    seqs["prompt_tokens"] = seqs["target"] = seqs["prompt"] = columns.prompt_tokens
    seqs["output_tokens"] = columns.output_tokens


def _set_engine(engine: Record, spec: ReplicaSpec, table: int) -> None:
    config, lines = spec.engine, spec.table.lines
    most = config.step_tokens_max
    engine.due_s, engine.token_s = math.inf, spec.table.step_s(0, 0, most) / most
    engine.kv_blocks = engine.free = engine.blank = engine.free_min = config.kv_blocks
    engine.running_max, engine.step_tokens_max = config.running_max, most
    engine.block_tokens = config.block_tokens
    engine.chunk_max = config.long_prefill_tokens_max or NEVER
    engine.watermark = int(config.watermark_ratio * config.kv_blocks)
    engine.caching, engine.whole_prompt_fits = config.prefix_cache, config.whole_prompt_fits
    engine.table, engine.lines = table, len(lines)
    engine.decode_size, engine.mixed_size = _sizes(spec.table)
    engine.turn, engine.heap_max = NEVER, 2 * config.running_max + _HEAP_SPARE
    for name in ("run_first", "run_last", "fill_first", "fill_last", "wait_first", "wait_last"):
        setattr(engine, name, NONE)


def _lists(engine: Record, at: int) -> list[Ints]:
    """The engine's lists, which begin at that place of all integers."""
    nodes = int(engine.units + engine.kv_blocks) if engine.units else 0
    most = int(engine.running_max)
    ring = np.full(nodes + 1, nodes, np.int64)  # nothing but its begin, which is its end
    parts = []
    for name, part in (
        ("needs_at", np.zeros(engine.block_tokens, np.int64)),
        ("heap_at", np.zeros(3 * engine.heap_max, np.int64)),
        ("chunks_at", np.zeros(most, np.int64)),
        ("firsts_at", np.zeros(most, np.int64)),
        ("dones_at", np.zeros(most, np.int64)),
        ("held_at", np.zeros(engine.units, np.int64)),
        ("freed_at", np.zeros(nodes, np.int64)),
        ("before_at", ring),
        ("after_at", ring),
        ("spare_at", np.arange(engine.units, nodes, dtype=np.int64)),
    ):
        setattr(engine, name, at)
        at += len(part)
        parts.append(part)
    engine.spare_size = len(parts[-1])
    return parts


def _tables(specs: Sequence[ReplicaSpec]) -> tuple[Floats, list[int]]:
    """All step tables, each of them once, and the place of each replica's."""
    places: dict[int, int] = {}
    parts: list[float] = []
    for spec in specs:
        if id(spec.table) in places:
            continue
        places[id(spec.table)] = len(parts)
        decode, mixed = _sizes(spec.table)
        for line in spec.table.lines:
            parts += [line.kv_s, line.pair_s, line.request_s]
            parts += [*line.decode_s[:decode], *line.mixed_s[:mixed]]
    return np.array(parts), [places[id(spec.table)] for spec in specs]


def _sizes(table: StepTable) -> tuple[int, int]:
    return table.requests_max + 1, table.tokens_max + 1


# --- prefixes -------------------------------------------------------------------------------------


def _set_units(
    seqs: Records, engines: Records, columns: TraceColumns, specs: Sequence[ReplicaSpec]
) -> tuple[Ints, int]:
    """The units of each prompt, in numbers from 0; and how many different ones there are."""
    lengths = np.diff(columns.offsets)
    sizes = {int(size) for size in np.unique(columns.block_tokens[lengths > 0]) if size > 0}
    blocks = {spec.engine.block_tokens for spec in specs if spec.engine.prefix_cache}
    if not (sizes and blocks):
        return np.zeros(0, np.int64), 0
    theirs, ours = sizes.pop(), blocks.pop()
    engines["unit_tokens"] = max(theirs, ours)
    known = np.where(columns.block_tokens == theirs, columns.prompt_tokens // theirs, 0)
    counts = np.minimum(lengths, known)
    if theirs % ours == 0:
        different, units = np.unique(columns.blocks, return_inverse=True)
        seqs["units_at"], seqs["units"] = columns.offsets[:-1], counts
        return units.astype(np.int64), len(different)
    if ours % theirs:
        expected = f"a divisor or a multiple of the {theirs} tokens of the trace's blocks"
        raise ConfigError("engine.block_tokens", ours, expected)
    return _taken_together(seqs, columns, counts, ours // theirs)


def _taken_together(
    seqs: Records, columns: TraceColumns, counts: Ints, each: int
) -> tuple[Ints, int]:
    """Units of several blocks of the trace."""
    numbers: dict[bytes, int] = {}
    units: list[int] = []
    whole = counts // each
    seqs["units"], seqs["units_at"] = whole, np.cumsum(whole) - whole
    for offset, count in zip(columns.offsets, whole, strict=False):
        for at in range(offset, offset + count * each, each):
            key = columns.blocks[at : at + each].tobytes()
            units.append(numbers.setdefault(key, len(numbers)))
    return np.array(units, np.int64), len(numbers)
