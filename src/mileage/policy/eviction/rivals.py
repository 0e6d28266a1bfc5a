"""Rivals: two sampled caches side by side that show when LRU does better."""

from __future__ import annotations

from mileage.policy.eviction.policy import Block
from mileage.policy.eviction.shadow import ShadowCache

__all__ = ["Rivals"]

_MARGIN_RATIO = 0.02
_MARGIN_HITS = 16.0
_MEMORY_HITS = 4096.0


class Rivals:
    """Counts hits of the same sampled blocks under both ranks; older hits fade.

    LRU takes the lead by 2 % and 16 hits, and loses it when it has no more hits than the other: in
    between it stays as it is, so that chance does not turn the cache over again and again.
    """

    __slots__ = ("_ours", "_theirs", "changes", "lru_leads")

    def __init__(self, *, blocks_max: int) -> None:
        self._ours = ShadowCache(blocks_max=blocks_max)
        self._theirs = ShadowCache(blocks_max=blocks_max)
        self.lru_leads = False
        self.changes = 0

    def use(self, block: Block, heat: float, request: int, depth: int, *, store: bool) -> None:
        """A use of a sampled block, with its rank for either."""
        self._ours.use(block, heat, depth, store=store)
        self._theirs.use(block, request, depth, store=store)

    def judge(self) -> None:
        """See who leads."""
        ours, theirs = self._ours.hits, self._theirs.hits
        ahead = theirs - ours
        changes = ahead <= 0 if self.lru_leads else ahead > _MARGIN_HITS + _MARGIN_RATIO * ours
        if changes:
            self.lru_leads = not self.lru_leads
            self.changes += 1
        if ours + theirs > _MEMORY_HITS:
            self._ours.hits /= 2
            self._theirs.hits /= 2
