"""One engine, compiled: what `Engine` does, step by step and stretch by stretch."""

from __future__ import annotations

import math

from mileage.sim.fast import batch, gaps, kv, running, steps
from mileage.sim.fast.jit import inlined, jit
from mileage.sim.fast.layout import NONE, Floats, Ints, Record, Records
from mileage.sim.sequence import GONE, WAITING

__all__ = ["add", "blocks_used", "finish", "fits", "steps_done"]

# Compiled code knows functions by their global names.
batch_blocks_after, batch_ended, batch_join = batch.blocks_after, batch.ended, batch.join
blocks_of, steps_until = steps.blocks_of, steps.steps_until
count_waiting, took_s = running.count_waiting, running.took_s
kv_release, kv_take = kv.release, kv.take
log_steps, measure = gaps.log_steps, gaps.measure
stop_filling, stop_running = running.stop_filling, running.stop_running


@inlined
def fits(engine: Record, sequence: Record) -> bool:
    """Whether the engine could ever serve such a request: all of it must fit into the cache."""
    tokens = sequence.prompt_tokens + max(0, sequence.output_tokens - 1)
    return bool(blocks_of(tokens, engine.block_tokens) <= engine.kv_blocks)


@inlined
def add(engine: Record, seqs: Records, index: int, now_s: float) -> bool:
    """A request comes that `fits`. True: `due_s` has changed."""
    count_waiting(engine, now_s)
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
    engine.due_s = engine.begun_s + took_s(engine, count)
    return True


@jit
def _until(engine: Record, time_s: float) -> int:
    return int(steps_until(time_s, engine.c1, engine.d1, engine.turn, engine.c2, engine.d2))


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
    stop_running(engine, seqs, sequence)
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
    stop_filling(engine, seqs, sequence)
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
