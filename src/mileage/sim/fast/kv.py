"""The blocks of a paged KV cache, compiled: what `KvPool` does.

Units of known content have numbers; `held` counts the sequences that share each, `freed` has the
blocks of each that no sequence has. Freed ones are a ring in the order of being taken, with the
place after the last node as its begin. Nodes past the units are content of no name.
"""

from __future__ import annotations

from mileage.sim.fast.jit import inlined, jit
from mileage.sim.fast.layout import Ints, Record
from mileage.sim.fast.steps import blocks_of

__all__ = ["admits", "found", "grow", "release", "start", "take"]


@jit
def take(engine: Record, ints: Ints, blocks: int) -> None:
    """Give blocks to a sequence; so many must be free."""
    engine.free -= blocks
    if engine.free < engine.free_min:
        engine.free_min = engine.free
    if blocks > engine.blank:
        _evict(engine, ints, blocks)
    engine.blank -= blocks


@jit
def _evict(engine: Record, ints: Ints, blocks: int) -> None:
    ring = engine.units + engine.kv_blocks
    while engine.blank < blocks:
        node = ints[engine.after_at + ring]
        size = ints[engine.freed_at + node]
        missing = blocks - engine.blank
        if node >= engine.units and size > missing:
            ints[engine.freed_at + node] = size - missing  # block by block
            size = missing
        else:
            _unlink(engine, ints, node)
            if node >= engine.units:
                ints[engine.spare_at + engine.spare_size] = node
                engine.spare_size += 1
        engine.blank += size


@jit
def _unlink(engine: Record, ints: Ints, node: int) -> None:
    before, after = ints[engine.before_at + node], ints[engine.after_at + node]
    ints[engine.after_at + before] = after
    ints[engine.before_at + after] = before
    ints[engine.freed_at + node] = 0
    engine.freed_nodes -= 1


@jit
def _append(engine: Record, ints: Ints, node: int, size: int) -> None:
    """It is the last one to be taken."""
    ring = engine.units + engine.kv_blocks
    before = ints[engine.before_at + ring]
    ints[engine.after_at + before] = node
    ints[engine.before_at + node] = before
    ints[engine.after_at + node] = ring
    ints[engine.before_at + ring] = node
    ints[engine.freed_at + node] = size
    engine.freed_nodes += 1


@inlined
def found(engine: Record, sequence: Record, ints: Ints) -> int:
    """Units of the sequence's prompt that are there, at most all but its last token."""
    if not sequence.keys:
        return 0
    most = min(sequence.keys, (sequence.target - 1) // engine.unit_tokens)
    count = 0
    for at in range(sequence.units_at, sequence.units_at + most):
        unit = ints[at]
        if not (ints[engine.held_at + unit] or ints[engine.freed_at + unit]):
            break
        count += 1
    return count


@inlined
def admits(
    engine: Record, sequence: Record, ints: Ints, units: int, tokens: int, spare: int
) -> bool:
    """Whether blocks for `tokens` tokens are free beside `spare` more, with `units` units of its
    prompt there."""
    missing = blocks_of(tokens, engine.block_tokens) + spare
    if units:
        shared = 0
        for at in range(sequence.units_at, sequence.units_at + units):
            if ints[engine.held_at + ints[at]]:
                shared += 1
        missing -= engine.unit_tokens // engine.block_tokens * shared
    return bool(missing <= engine.free)


@inlined
def start(engine: Record, sequence: Record, ints: Ints, owns: Ints, units: int) -> None:
    """The sequence begins, and shares the units found."""
    sequence.computed = 0
    sequence.registered = 0
    if not engine.caching:
        return
    engine.query_tokens += sequence.target
    if not sequence.keys:
        return
    sequence.registered = sequence.owned = units
    sequence.computed = units * engine.unit_tokens
    engine.hit_tokens += sequence.computed
    for at in range(sequence.units_at, sequence.units_at + units):
        unit = ints[at]
        owns[at] = 1
        if not ints[engine.held_at + unit]:
            engine.free -= ints[engine.freed_at + unit]
            _unlink(engine, ints, unit)
            engine.held_units += 1
        ints[engine.held_at + unit] += 1
    if engine.free < engine.free_min:
        engine.free_min = engine.free


@jit
def grow(engine: Record, sequence: Record, ints: Ints, owns: Ints, tokens: int) -> None:
    """The sequence computes up to so many tokens: it takes blocks, and its full units are known
    from now on."""
    blocks = blocks_of(tokens, engine.block_tokens)
    blocks -= blocks_of(sequence.computed, engine.block_tokens)
    if blocks:
        take(engine, ints, blocks)
    at = sequence.registered
    while at < sequence.keys and (at + 1) * engine.unit_tokens <= tokens:
        unit = ints[sequence.units_at + at]
        if not (ints[engine.held_at + unit] or ints[engine.freed_at + unit]):
            ints[engine.held_at + unit] = 1
            engine.held_units += 1
            owns[sequence.units_at + at] = 1
            sequence.owned += 1
        at += 1
    sequence.registered = at


@jit
def release(engine: Record, sequence: Record, ints: Ints, owns: Ints, extra: int) -> None:
    """The sequence gives back the blocks of the tokens computed, and `extra` empty ones."""
    whole, part = divmod(sequence.computed, engine.block_tokens)
    empty = extra + 1 if part > 0 else extra
    size = 0
    if sequence.owned:
        size = engine.unit_tokens // engine.block_tokens
        whole -= sequence.owned * size
    engine.free += whole + empty
    if engine.held_units or engine.freed_nodes:
        engine.blank += empty
        if whole:
            engine.spare_size -= 1
            _append(engine, ints, ints[engine.spare_at + engine.spare_size], whole)
    else:
        engine.blank += whole + empty
    if not sequence.owned:
        return
    for at in range(sequence.units_at + sequence.registered - 1, sequence.units_at - 1, -1):
        if not owns[at]:
            continue
        owns[at] = 0
        unit = ints[at]
        ints[engine.held_at + unit] -= 1
        if not ints[engine.held_at + unit]:
            engine.held_units -= 1
            _append(engine, ints, unit, size)
            engine.free += size
    sequence.owned = 0
