"""The next steps of an engine, compiled: whose prompts go on or begin, and who gives way."""

from __future__ import annotations

import math

from mileage.sim.fast import batch, gaps, kv, running, steps
from mileage.sim.fast.jit import inlined, jit
from mileage.sim.fast.layout import NONE, Floats, Ints, Record, Records
from mileage.sim.sequence import DECODING, PREFILLING, WAITING
from mileage.sim.step_math import NEVER

__all__ = ["begin"]

# Compiled code knows functions by their global names.
batch_blocks_after, batch_blocks_now, batch_context = (
    batch.blocks_after,
    batch.blocks_now,
    batch.context,
)
batch_leave, batch_steps_left, batch_steps_within = (
    batch.leave,
    batch.steps_left,
    batch.steps_within,
)
blocks_of, pairs_of = steps.blocks_of, steps.pairs_of
count_waiting, took_s = running.count_waiting, running.took_s
keep_gaps, plan_decode, plan_mixed = gaps.keep_gaps, steps.plan_decode, steps.plan_mixed
kv_admits, kv_found, kv_grow, kv_release, kv_start, kv_take = (
    kv.admits,
    kv.found,
    kv.grow,
    kv.release,
    kv.start,
    kv.take,
)
stop_filling, stop_running = running.stop_filling, running.stop_running


@inlined
def begin(
    engine: Record,
    seqs: Records,
    ints: Ints,
    owns: Ints,
    tables: Floats,
    times: Floats,
    past: Floats,
    spent: int,
    now_s: float,
) -> int:
    """Plan the next steps; `due_s` tells when they are over. Returns what of `past` is in use, of
    which `spent` was."""
    engine.begun_s = now_s
    preemptions = engine.preemptions
    blocks = batch_blocks_now(engine, ints)
    while blocks > engine.free:
        # Those that began first have taken what there was.
        taken = engine.free
        kv_take(engine, ints, taken)
        before = batch_blocks_now(engine, ints)
        spent = _preempt(engine, seqs, ints, owns, times, past, spent, now_s, 0)
        blocks += batch_blocks_now(engine, ints) - before - taken
    if blocks:
        kv_take(engine, ints, blocks)
    budget = engine.step_tokens_max - engine.count
    if engine.filling:
        budget, spent = _go_on(engine, seqs, ints, owns, times, past, spent, budget, now_s)
    engine.retry = engine.preemptions != preemptions
    if engine.waiting and not engine.retry:
        _admit(engine, seqs, ints, owns, budget, now_s)
    if engine.chunks_size:
        _plan_chunks(engine, seqs, ints, tables)
    elif engine.count:
        _plan_stretch(engine, seqs, ints, tables)
    else:
        engine.due_s = math.inf
        return spent
    engine.due_s = now_s + took_s(engine, engine.planned)
    return spent


@jit
def _preempt(
    engine: Record,
    seqs: Records,
    ints: Ints,
    owns: Ints,
    times: Floats,
    past: Floats,
    spent: int,
    now_s: float,
    extra: int,
) -> int:
    """The request that began last gives way; see `Engine`."""
    index = engine.run_last
    sequence = seqs[index]
    stop_running(engine, seqs, sequence)
    if sequence.state == DECODING:
        batch_leave(engine, sequence, ints)
        if sequence.computed % engine.block_tokens:
            extra = 0
        kv_release(engine, sequence, ints, owns, extra)
        sequence.last_token_s = now_s
        spent = keep_gaps(engine, sequence, times, past, spent)
    else:
        stop_filling(engine, seqs, sequence)
        kv_release(engine, sequence, ints, owns, 0)
    sequence.target = sequence.prompt_tokens + sequence.produced
    sequence.computed = 0
    sequence.state = WAITING
    sequence.preemptions += 1
    engine.preemptions += 1
    count_waiting(engine, now_s)
    sequence.following = engine.wait_first if engine.waiting else NONE
    if not engine.waiting:
        engine.wait_last = index
    engine.wait_first = index
    engine.waiting += 1
    return spent


@inlined
def _chunk_max(engine: Record) -> int:
    """The most tokens of one prompt; a request that is alone has all of the budget."""
    return int(NEVER if engine.running + engine.waiting <= 1 else engine.chunk_max)


@inlined
def _add_chunk(engine: Record, sequence: Record, ints: Ints, index: int, chunk: int) -> None:
    sequence.chunk = chunk
    ints[engine.chunks_at + engine.chunks_size] = index
    engine.chunks_size += 1


@inlined
def _go_on(
    engine: Record,
    seqs: Records,
    ints: Ints,
    owns: Ints,
    times: Floats,
    past: Floats,
    spent: int,
    budget: int,
    now_s: float,
) -> tuple[int, int]:
    """Further chunks of the prompts that are in the middle; what is left of the budget, and what
    of `past` is in use."""
    size, most = engine.block_tokens, _chunk_max(engine)
    index = engine.fill_first
    while index >= 0 and budget > 0:
        sequence = seqs[index]
        chunk = min(sequence.target - sequence.computed, budget, most)
        tokens, decoding = sequence.computed + chunk, engine.count
        blocks = blocks_of(tokens, size) - blocks_of(sequence.computed, size)
        while blocks > engine.free and sequence.state == PREFILLING:
            spent = _preempt(engine, seqs, ints, owns, times, past, spent, now_s, 1)
        budget += decoding - engine.count
        if sequence.state != PREFILLING:
            break
        kv_grow(engine, sequence, ints, owns, tokens)
        _add_chunk(engine, sequence, ints, index, chunk)
        budget -= chunk
        index = sequence.fill_after
    return budget, spent


@inlined
def _admit(
    engine: Record, seqs: Records, ints: Ints, owns: Ints, budget: int, now_s: float
) -> None:
    most = _chunk_max(engine)
    while engine.waiting and budget > 0 and engine.running < engine.running_max:
        spare = engine.watermark if engine.running else 0
        chunk = _start(engine, seqs, ints, owns, min(budget, most), spare, now_s)
        if not chunk:
            return
        budget -= chunk


@inlined
def _start(
    engine: Record, seqs: Records, ints: Ints, owns: Ints, most: int, spare: int, now_s: float
) -> int:
    """The first that waits begins, where that leaves `spare` blocks: the tokens of its first chunk;
    0: it does not fit."""
    index = engine.wait_first
    sequence = seqs[index]
    found = kv_found(engine, sequence, ints)
    known = found * engine.unit_tokens
    chunk = min(sequence.target - known, most)
    tokens = sequence.target if engine.whole_prompt_fits else known + chunk
    if not kv_admits(engine, sequence, ints, found, tokens, spare):
        return 0
    count_waiting(engine, now_s)
    engine.wait_first = sequence.following
    engine.waiting -= 1
    kv_start(engine, sequence, ints, owns, found)
    kv_grow(engine, sequence, ints, owns, known + chunk)
    if sequence.cached_tokens < 0:
        sequence.cached_tokens = known
    sequence.state = PREFILLING
    sequence.run_before, sequence.run_after = engine.run_last, NONE
    if engine.run_last >= 0:
        seqs[engine.run_last].run_after = index
    else:
        engine.run_first = index
    engine.run_last = index
    engine.running += 1
    sequence.fill_before, sequence.fill_after = engine.fill_last, NONE
    if engine.fill_last >= 0:
        seqs[engine.fill_last].fill_after = index
    else:
        engine.fill_first = index
    engine.fill_last = index
    engine.filling += 1
    _add_chunk(engine, sequence, ints, index, chunk)
    return int(chunk)


@inlined
def _plan_chunks(engine: Record, seqs: Records, ints: Ints, tables: Floats) -> None:
    tokens, pairs = 0, 0.0
    for at in range(engine.chunks_at, engine.chunks_at + engine.chunks_size):
        sequence = seqs[ints[at]]
        tokens += sequence.chunk
        pairs += pairs_of(sequence.computed, sequence.chunk)
    engine.planned = 1
    plan_mixed(engine, tables, batch_context(engine), tokens, pairs)


@inlined
def _plan_stretch(engine: Record, seqs: Records, ints: Ints, tables: Floats) -> None:
    plan_decode(engine, tables, batch_context(engine))
    engine.planned = 1
    # A prompt that was found in part may need less room once that is overwritten.
    if engine.retry or (
        engine.waiting and seqs[engine.wait_first].keys and not engine.whole_prompt_fits
    ):
        return
    count = batch_steps_left(engine, seqs, ints)
    if count > 1 and batch_blocks_after(engine, ints, count - 1) > engine.free:
        count = 1 + batch_steps_within(engine, ints, engine.free)
    engine.planned = count
