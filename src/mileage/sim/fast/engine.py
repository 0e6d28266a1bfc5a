"""One engine, compiled: what `Engine` does, step by step and stretch by stretch."""

from __future__ import annotations

import math

from mileage.sim.fast import batch, gaps, kv, steps
from mileage.sim.fast.jit import inlined, jit
from mileage.sim.fast.layout import NONE, Floats, Ints, Record, Records
from mileage.sim.sequence import DECODING, GONE, PREFILLING, WAITING
from mileage.sim.step_math import NEVER

__all__ = ["add", "begin", "blocks_used", "finish", "fits", "steps_done"]

# Compiled code knows functions by their global names.
blocks_of, pairs_of, steps_until, stretch_s = (
    steps.blocks_of,
    steps.pairs_of,
    steps.steps_until,
    steps.stretch_s,
)


@inlined
def fits(engine: Record, sequence: Record) -> bool:
    """Whether the engine could ever serve such a request: all of it must fit into the cache."""
    tokens = sequence.prompt_tokens + max(0, sequence.output_tokens - 1)
    return bool(blocks_of(tokens, engine.block_tokens) <= engine.kv_blocks)


@inlined
def add(engine: Record, seqs: Records, index: int, now_s: float) -> bool:
    """A request comes that `fits`. True: `due_s` has changed."""
    _count_waiting(engine, now_s)
    blocked = engine.waiting > 0
    sequence = seqs[index]
    sequence.following = NONE
    if blocked:
        seqs[engine.wait_last].following = index
    else:
        engine.wait_first = index
    engine.wait_last = index
    engine.waiting += 1
    sequence.state = WAITING
    sequence.keys = sequence.units if engine.caching else 0
    if engine.due_s == math.inf:
        engine.begun_s = engine.due_s = now_s
        return True
    if blocked or engine.running >= engine.running_max:
        return False  # those before it wait for the same steps to end
    return _cut(engine, now_s)


@inlined
def _cut(engine: Record, now_s: float) -> bool:
    """Let the stretch in progress end with the step that is in progress."""
    if engine.chunks_size or engine.planned <= 1:
        return False
    count = max(1, _until(engine, now_s - engine.begun_s))
    if count >= engine.planned:
        return False
    engine.planned = count
    engine.due_s = engine.begun_s + _took_s(engine, count)
    return True


@jit
def _until(engine: Record, time_s: float) -> int:
    return int(steps_until(time_s, engine.c1, engine.d1, engine.turn, engine.c2, engine.d2))


@jit
def _took_s(engine: Record, count: int) -> float:
    return float(stretch_s(count, engine.c1, engine.d1, engine.turn, engine.c2, engine.d2))


@inlined
def _count_waiting(engine: Record, now_s: float) -> None:
    engine.waiting_s += engine.waiting * (now_s - engine.changed_s)
    engine.changed_s = now_s


@jit
def steps_done(engine: Record, now_s: float) -> int:
    """Steps of those in progress that are over by now, of a stretch that only decodes."""
    if engine.chunks_size or engine.planned <= 1 or now_s <= engine.begun_s:
        return 0
    if now_s >= engine.due_s:
        return int(engine.planned)
    return _until(engine, now_s - engine.begun_s) - 1


@inlined
def blocks_used(engine: Record, ints: Ints, now_s: float) -> int:
    """Blocks that requests have now."""
    used = engine.kv_blocks - engine.free
    done = steps_done(engine, now_s)
    return int(used + batch_blocks_after(engine, ints, done - 1) if done > 1 else used)


# --- the end of steps -----------------------------------------------------------------------------

batch_blocks_after, batch_blocks_now = batch.blocks_after, batch.blocks_now
batch_context, batch_ended, batch_join, batch_leave = (
    batch.context,
    batch.ended,
    batch.join,
    batch.leave,
)
batch_steps_left, batch_steps_within = batch.steps_left, batch.steps_within
kv_admits, kv_found, kv_grow, kv_release, kv_start, kv_take = (
    kv.admits,
    kv.found,
    kv.grow,
    kv.release,
    kv.start,
    kv.take,
)
keep_gaps, log_steps, measure = gaps.keep_gaps, gaps.log_steps, gaps.measure
plan_decode, plan_mixed = steps.plan_decode, steps.plan_mixed


@inlined
def finish(
    engine: Record,
    seqs: Records,
    ints: Ints,
    owns: Ints,
    times: Floats,
    past: Floats,
    scratch: Floats,
    now_s: float,
) -> None:
    """The steps in progress are over; the log must have room for them."""
    engine.firsts_size = 0
    engine.dones_size = 0
    count = engine.planned
    if not count:
        return
    engine.planned = 0
    took_s = now_s - engine.begun_s
    engine.busy_s += took_s
    engine.running_s += took_s * engine.running
    log_steps(engine, times, count)
    if count > 1:
        blocks = batch_blocks_after(engine, ints, count - 1)
        if blocks:
            kv_take(engine, ints, blocks)
    engine.steps += count
    decoded = count * engine.count
    engine.output_tokens += decoded
    engine.decode_tokens += decoded
    index = batch_ended(engine, seqs, ints)
    while index >= 0:
        _end(engine, seqs, ints, owns, times, past, scratch, index, now_s)
        index = batch_ended(engine, seqs, ints)
    chunks, engine.chunks_size = engine.chunks_size, 0
    for at in range(engine.chunks_at, engine.chunks_at + chunks):
        index = ints[at]
        sequence = seqs[index]
        engine.prefill_tokens += sequence.chunk
        sequence.computed += sequence.chunk
        if sequence.computed == sequence.target:
            _produce(engine, seqs, ints, owns, times, past, scratch, index, now_s)


@jit
def _end(
    engine: Record,
    seqs: Records,
    ints: Ints,
    owns: Ints,
    times: Floats,
    past: Floats,
    scratch: Floats,
    index: int,
    now_s: float,
) -> None:
    sequence = seqs[index]
    if sequence.output_tokens > 1:
        measure(engine, sequence, times, past, scratch, now_s)
    _stop_running(engine, seqs, sequence)
    kv_release(engine, sequence, ints, owns, 0)
    sequence.state = GONE
    engine.finished += 1
    ints[engine.dones_at + engine.dones_size] = index
    engine.dones_size += 1


@jit
def _produce(
    engine: Record,
    seqs: Records,
    ints: Ints,
    owns: Ints,
    times: Floats,
    past: Floats,
    scratch: Floats,
    index: int,
    now_s: float,
) -> None:
    """All that is known of the sequence is computed: its next token comes out."""
    sequence = seqs[index]
    _stop_filling(engine, seqs, sequence)
    if not sequence.produced:
        engine.prompt_tokens += sequence.prompt_tokens
        sequence.first_token_s = now_s
        ints[engine.firsts_at + engine.firsts_size] = index
        engine.firsts_size += 1
    elif sequence.past:
        past[sequence.past_at + sequence.past - 1] = now_s - sequence.last_token_s
    if sequence.output_tokens:
        sequence.produced += 1
        engine.output_tokens += 1
    if sequence.produced < sequence.output_tokens:
        batch_join(engine, seqs, ints, index)
        return
    sequence.first_at = engine.steps
    _end(engine, seqs, ints, owns, times, past, scratch, index, now_s)


@jit
def _stop_running(engine: Record, seqs: Records, sequence: Record) -> None:
    before, after = sequence.run_before, sequence.run_after
    if before >= 0:
        seqs[before].run_after = after
    else:
        engine.run_first = after
    if after >= 0:
        seqs[after].run_before = before
    else:
        engine.run_last = before
    engine.running -= 1


@jit
def _stop_filling(engine: Record, seqs: Records, sequence: Record) -> None:
    before, after = sequence.fill_before, sequence.fill_after
    if before >= 0:
        seqs[before].fill_after = after
    else:
        engine.fill_first = after
    if after >= 0:
        seqs[after].fill_before = before
    else:
        engine.fill_last = before
    engine.filling -= 1


# --- the next step --------------------------------------------------------------------------------


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
    engine.due_s = now_s + _took_s(engine, engine.planned)
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
    _stop_running(engine, seqs, sequence)
    if sequence.state == DECODING:
        batch_leave(engine, sequence, ints)
        if sequence.computed % engine.block_tokens:
            extra = 0
        kv_release(engine, sequence, ints, owns, extra)
        sequence.last_token_s = now_s
        spent = keep_gaps(engine, sequence, times, past, spent)
    else:
        _stop_filling(engine, seqs, sequence)
        kv_release(engine, sequence, ints, owns, 0)
    sequence.target = sequence.prompt_tokens + sequence.produced
    sequence.computed = 0
    sequence.state = WAITING
    sequence.preemptions += 1
    engine.preemptions += 1
    _count_waiting(engine, now_s)
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
    _count_waiting(engine, now_s)
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
