"""ShadowCache: what a cache of another policy would hit, estimated on a sample of the blocks."""

from __future__ import annotations

import heapq

from mileage.policy.eviction.policy import Block, ContentKey

__all__ = ["ShadowCache", "sampled"]

_MIX = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
_HEAP_SLACK = 256


def sampled(block: Block, one_in: int) -> bool:
    """Whether the block is in the sample, which has one in so many blocks; always the same ones."""
    number = block.content_id * 31 + block.version if isinstance(block, ContentKey) else block
    mixed = (number * _MIX) & _WORD
    mixed = ((mixed ^ (mixed >> 32)) * _MIX) & _WORD
    return (mixed >> 32) % one_in == 0


class ShadowCache:
    """The sampled blocks with the highest ranks, without their contents.

    Blocks are sampled by their id and the size is scaled alike, which keeps the hit ratio
    (Waldspurger et al., SHARDS, 2015). The prefix rule needs no tree: with ranks that are never
    higher than a parent's, what is evicted is a leaf.
    """

    __slots__ = ("_blocks_max", "_heap", "_pushed", "_ranks", "hits")

    def __init__(self, *, blocks_max: int) -> None:
        self._blocks_max = blocks_max
        self._ranks: dict[Block, float] = {}
        self._heap: list[tuple[float, int, int, Block]] = []
        self._pushed = 0
        self.hits = 0.0

    def use(self, block: Block, rank: float, depth: int, *, store: bool) -> None:
        """A use of a sampled block, which has now this rank."""
        if block in self._ranks:
            self.hits += 1
        elif not store:
            return
        self._ranks[block] = rank
        self._pushed += 1
        heapq.heappush(self._heap, (rank, -depth, self._pushed, block))
        while len(self._ranks) > self._blocks_max:
            rank, _, _, oldest = heapq.heappop(self._heap)
            if self._ranks.get(oldest) == rank:
                del self._ranks[oldest]
        if len(self._heap) > 2 * len(self._ranks) + _HEAP_SLACK:
            self._heap = [e for e in self._heap if self._ranks.get(e[3]) == e[0]]
            heapq.heapify(self._heap)
