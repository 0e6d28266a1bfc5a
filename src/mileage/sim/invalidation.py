"""Invalidations in a fleet: told to those that hold a block, against told to all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Final

import msgspec

from mileage.core.bounds import require_at_least, require_positive
from mileage.policy.cached_prefixes import CachedPrefixes
from mileage.policy.eviction.lru import LruEviction
from mileage.policy.eviction.policy import Block, BlockUse
from mileage.policy.eviction.prefix_cache import PrefixCache
from mileage.policy.prefix_directory.directory import BlockDirectory, Owner
from mileage.workload.trace_request import TraceRequest

__all__ = ["InvalidationTotals", "invalidations"]

HEADER_BYTES: Final = 64
"""Of a message: addresses, kind, number."""
BLOCK_BYTES: Final = 32
"""Of a block's hash."""


class InvalidationTotals(msgspec.Struct, kw_only=True):
    """What was sent, in messages and bytes; a message is one to one replica."""

    invalidations: int = 0
    blocks: int = 0
    """That were made invalid, and that somebody held."""
    holder_messages: int = 0
    holder_bytes: int = 0
    broadcast_messages: int = 0
    broadcast_bytes: int = 0


class _Told(LruEviction):
    """LRU that tells the directory what has gone."""

    def __init__(self, directory: BlockDirectory, owner: Owner) -> None:
        super().__init__()
        self._directory, self._owner = directory, owner

    def evicted(self, block: Block) -> None:
        """See EvictionPolicy."""
        super().evicted(block)
        assert isinstance(block, int)
        self._directory.removed(self._owner, (block,))


def invalidations(
    requests: Iterable[TraceRequest],
    *,
    replicas: int,
    blocks_max: int,
    every: int,
    by_prefix: bool,
    random: Random,
) -> InvalidationTotals:
    """Replay a trace through caches of `blocks_max` blocks each; after each `every` requests the
    prompt of an earlier one becomes invalid with all that goes on from it, as when its tenant has
    its data removed.

    `by_prefix`: a request goes to the replica that has most of it; else to each in turn. The
    directory is told what each cache stores and evicts, and nothing else.
    """
    require_at_least("replicas", replicas, 1)
    require_positive("every", every)
    directory, totals = BlockDirectory(blocks_max * replicas + 1), InvalidationTotals()
    owners = [Owner(f"replica-{number}") for number in range(replicas)]
    caches = {o: PrefixCache(_Told(directory, o), blocks_max=blocks_max) for o in owners}
    recent = [CachedPrefixes(blocks_max) for _ in owners]
    below: dict[int, set[int]] = {}
    """Of each block those that follow it directly, so far."""
    chains: list[Sequence[int]] = []
    for number, request in enumerate(requests, 1):
        tokens = request.block_tokens
        chain = request.prefix_blocks[: request.prompt_tokens // tokens] if tokens else ()
        if not chain:
            continue
        chains.append(chain)
        for parent, block in pairwise(chain):
            below.setdefault(parent, set()).add(block)
        place = number % replicas
        if by_prefix:
            depths = [each.match(chain) for each in recent]
            if max(depths):
                place = depths.index(max(depths))
        recent[place].sent(chain)
        cache = caches[owners[place]]
        cache.serve(BlockUse(chain, len(chain)), request.arrived_s)
        directory.stored(owners[place], [block for block in chain if block in cache])
        if number % every == 0:
            chosen = random.choice(chains)
            _invalidate(_family(chosen[len(chosen) // 2 :], below), directory, caches, totals)
    return totals


def _family(blocks: Sequence[int], below: dict[int, set[int]]) -> list[int]:
    """The blocks, and all that go on from them."""
    found: dict[int, None] = {}
    waiting = list(reversed(blocks))
    while waiting:
        block = waiting.pop()
        if block not in found:
            found[block] = None
            waiting.extend(sorted(below.get(block, ())))
    return list(found)


def _invalidate(
    blocks: Sequence[int],
    directory: BlockDirectory,
    caches: Mapping[Owner, PrefixCache],
    totals: InvalidationTotals,
) -> None:
    held = [block for block in blocks if block in directory]
    messages = directory.invalidate(held)
    totals.invalidations += 1
    totals.blocks += len(held)
    totals.holder_messages += len(messages)
    totals.holder_bytes += sum(HEADER_BYTES + BLOCK_BYTES * len(each) for each in messages.values())
    totals.broadcast_messages += len(caches)
    totals.broadcast_bytes += len(caches) * (HEADER_BYTES + BLOCK_BYTES * len(blocks))
    for owner, told in messages.items():
        for block in reversed(told):  # the deepest first: a block goes only when none follows it
            caches[owner].remove(block)
    for block in held:
        assert not directory.awaited(block), "a replica that holds it was not told"
