"""LRU: the block that was not used for the longest time goes first, leaves before their parents."""

from __future__ import annotations

from mileage.policy.eviction.policy import Block, BlockUse

__all__ = ["LruEviction"]


class LruEviction:
    """Rank is the number of the last request that used the block: what most engines do.

    It has nothing to configure. Partial blocks are stored like full ones.
    """

    __slots__ = ("_requests", "_used")

    def __init__(self) -> None:
        self._requests = 0
        self._used: dict[Block, int] = {}

    def use(self, use: BlockUse, now_s: float) -> int:
        """Every block of the chain is now the youngest; all are worth storing."""
        self._requests += 1
        self._used.update(dict.fromkeys(use.chain, self._requests))
        return len(use.chain)

    def rank(self, block: Block) -> float:
        """Number of the last request with the block; 0 before its first."""
        return self._used.get(block, 0)

    def epoch(self, now_s: float) -> int:
        """Ranks stay."""
        return 0

    def evicted(self, block: Block) -> None:
        """Nothing is kept of it."""
        self._used.pop(block, None)
