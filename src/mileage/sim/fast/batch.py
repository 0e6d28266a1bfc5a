"""The requests of an engine that decode, compiled: what `DecodeBatch` does.

Those that are to be complete lie in a heap of (count of steps, order of joining, request). One that
has left meanwhile stays there until it comes up, or until the heap is full.
"""

from __future__ import annotations

from mileage.sim.fast.jit import inlined, jit
from mileage.sim.fast.layout import NONE, Ints, Record, Records
from mileage.sim.sequence import DECODING

__all__ = [
    "blocks_after",
    "blocks_now",
    "context",
    "ended",
    "join",
    "leave",
    "steps_left",
    "steps_within",
]


@inlined
def context(engine: Record) -> int:
    """Tokens of context of all of them together."""
    tokens: int = engine.bases + engine.count * engine.steps
    return tokens


@inlined
def join(engine: Record, seqs: Records, ints: Ints, index: int) -> None:
    """A token of the sequence has just come out of its prefill, and others are to follow."""
    sequence, steps = seqs[index], engine.steps
    sequence.state = DECODING
    sequence.first_at = steps
    sequence.ends_at = steps + sequence.output_tokens - sequence.produced
    sequence.base = base = sequence.computed - steps
    engine.count += 1
    engine.bases += base
    engine.first_sum += steps
    engine.past_sum += sequence.past
    ints[engine.needs_at + -base % engine.block_tokens] += 1
    engine.order += 1
    sequence.order = engine.order
    if engine.heap_size == engine.heap_max:
        _rebuild(engine, seqs, ints)
    _push(engine, ints, sequence.ends_at, engine.order, index)


@jit
def leave(engine: Record, sequence: Record, ints: Ints) -> None:
    """The sequence decodes no longer: brings its own counts up to date."""
    base = sequence.base
    engine.count -= 1
    engine.bases -= base
    engine.first_sum -= sequence.first_at
    engine.past_sum -= sequence.past
    ints[engine.needs_at + -base % engine.block_tokens] -= 1
    sequence.computed = base + engine.steps
    sequence.produced = sequence.output_tokens - (sequence.ends_at - engine.steps)
    sequence.order = NONE


# --- the heap -------------------------------------------------------------------------------------


@jit
def _push(engine: Record, ints: Ints, ends_at: int, order: int, index: int) -> None:
    heap, at = engine.heap_at, engine.heap_size
    engine.heap_size += 1
    while at > 0:
        up = (at - 1) // 2
        if not _before(ends_at, order, ints, heap + 3 * up):
            break
        for part in range(3):
            ints[heap + 3 * at + part] = ints[heap + 3 * up + part]
        at = up
    ints[heap + 3 * at], ints[heap + 3 * at + 1], ints[heap + 3 * at + 2] = ends_at, order, index


@jit
def _before(ends_at: int, order: int, ints: Ints, at: int) -> bool:
    return bool(ends_at < ints[at] or (ends_at == ints[at] and order < ints[at + 1]))


@jit
def _pop(engine: Record, ints: Ints) -> None:
    """Take the first one out; there must be one."""
    heap = engine.heap_at
    engine.heap_size -= 1
    size, at = engine.heap_size, 0
    last = heap + 3 * size
    ends_at, order, index = ints[last], ints[last + 1], ints[last + 2]
    while True:
        down = 2 * at + 1
        if down >= size:
            break
        place = heap + 3 * down
        if down + 1 < size and _before(ints[place + 3], ints[place + 4], ints, place):
            down += 1
            place += 3
        if _before(ends_at, order, ints, place):
            break
        for part in range(3):
            ints[heap + 3 * at + part] = ints[place + part]
        at = down
    ints[heap + 3 * at], ints[heap + 3 * at + 1], ints[heap + 3 * at + 2] = ends_at, order, index


@inlined
def _rebuild(engine: Record, seqs: Records, ints: Ints) -> None:
    """Leave out those that have left."""
    heap, size = engine.heap_at, engine.heap_size
    engine.heap_size = 0
    for at in range(heap, heap + 3 * size, 3):
        ends_at, order, index = ints[at], ints[at + 1], ints[at + 2]
        if seqs[index].order == order:
            _push(engine, ints, ends_at, order, index)


@inlined
def ended(engine: Record, seqs: Records, ints: Ints) -> int:
    """One that is complete by now, which has left; or NONE."""
    heap = engine.heap_at
    while engine.heap_size and ints[heap] <= engine.steps:
        order, index = ints[heap + 1], ints[heap + 2]
        _pop(engine, ints)
        if seqs[index].order == order:
            leave(engine, seqs[index], ints)
            return int(index)
    return NONE


@inlined
def steps_left(engine: Record, seqs: Records, ints: Ints) -> int:
    """Steps until the next of them is complete; there must be one."""
    heap = engine.heap_at
    while seqs[ints[heap + 2]].order != ints[heap + 1]:
        _pop(engine, ints)  # it was preempted
    return int(ints[heap] - engine.steps)


# --- blocks ---------------------------------------------------------------------------------------


@inlined
def blocks_now(engine: Record, ints: Ints) -> int:
    """Blocks that the next step takes."""
    return int(ints[engine.needs_at + engine.steps % engine.block_tokens])


@jit
def blocks_after(engine: Record, ints: Ints, steps: int) -> int:
    """Blocks that the `steps` steps take that follow the next one."""
    rounds, steps = divmod(steps, engine.block_tokens)
    start = engine.steps + 1
    blocks = rounds * engine.count
    for at in range(start, start + steps):
        blocks += ints[engine.needs_at + at % engine.block_tokens]
    return int(blocks)


@inlined
def steps_within(engine: Record, ints: Ints, blocks: int) -> int:
    """The most steps after the next one that take no more than `blocks` blocks."""
    rounds, left = divmod(blocks, engine.count)
    steps, at = rounds * engine.block_tokens, engine.steps + 1
    need = ints[engine.needs_at + at % engine.block_tokens]
    while need <= left:
        left -= need
        steps += 1
        at += 1
        need = ints[engine.needs_at + at % engine.block_tokens]
    return int(steps)
