"""The most that any prefix cache could have hit, knowing the future."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from mileage.sim.cache_trace import CacheTrace

__all__ = ["CacheOptimum"]

_NEVER: Final = 1 << 60
_TICK_REQUESTS: Final = 256


class CacheOptimum:
    """Hits of the best cache of each size: MIN with bypass, a whole request at a time.

    A request's blocks that are stored, up to the first one that is not, are hits. Then the cache
    keeps whatever it likes of what it had and what the request brought; nothing comes in
    beforehand. Best is to keep the blocks that are needed soonest, and of those needed by the same
    request the ones nearest to the root.

    That is exact. Without the prefix rule, each hit is an interval between two uses of one block in
    which it takes up one place, and keeping those that end soonest gives the most intervals
    (interval scheduling on `blocks_max` machines; Belady 1966, with bypass). And the rule costs
    nothing: whoever needs a block needs its parent, so the parent's next use is never later, and a
    parent is never dropped before its children.

    It is more than an engine can have, which must store a prompt while it runs.
    """

    def __init__(self, trace: CacheTrace) -> None:
        self._trace = trace
        following = [_NEVER] * trace.blocks
        next_uses = []
        for number in range(len(trace) - 1, -1, -1):
            chain = trace.chains[number]
            next_uses.append([following[block] for block in chain])
            for block in chain:
                following[block] = number
        next_uses.reverse()
        self._next_uses = next_uses

    def hits(self, blocks_max: int, *, tick: Callable[[int], None] | None = None) -> int:
        """Hits with so many blocks; `tick` is told now and then how many requests are done."""
        stored: dict[int, int] = {}
        heap: list[tuple[int, int, int]] = []
        hits = 0
        for number, (chain, next_uses) in enumerate(
            zip(self._trace.chains, self._next_uses, strict=True)
        ):
            for depth, (block, following) in enumerate(zip(chain, next_uses, strict=True)):
                if stored.pop(block, None) is not None:
                    hits += 1
                if following != _NEVER:
                    stored[block] = following
                    heapq.heappush(heap, (-following, -depth, block))
            while len(stored) > blocks_max:
                following, _, block = heapq.heappop(heap)
                if stored.get(block) == -following:
                    del stored[block]
            if tick is not None and number % _TICK_REQUESTS == 0:
                tick(number)
        return hits
