"""EvictionPolicy: what ranks the blocks of one cache; the lowest rank goes first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

__all__ = ["Block", "BlockUse", "ContentKey", "EvictionPolicy"]


class ContentKey(NamedTuple):
    """A block where the same content may exist in several versions: of weights, of an adapter."""

    content_id: int
    version: int


Block: TypeAlias = int | ContentKey
"""Names a block together with all that precedes it: equal blocks have equal ancestors."""


class BlockUse(NamedTuple):
    """One request's use of a cache."""

    chain: Sequence[Block]
    """The prompt's blocks, root first, each once."""
    whole: int
    """So many of them, the first ones, are full; at most one, the last, is partial."""
    returns_ratio: float | None = None
    """Probability that a request that goes on from this one follows, where somebody knows."""


class EvictionPolicy(Protocol):
    """Ranks the blocks of one cache. It is told what is used and what was evicted.

    It neither stores blocks nor knows which may go: `PrefixCache` does, for every policy alike.
    """

    def use(self, use: BlockUse, now_s: float) -> int:
        """Learn of a request before its blocks are stored; gives how many are worth storing.

        They are the first ones of the chain. Ranks of the chain's blocks have changed, no others.
        """
        ...

    def rank(self, block: Block) -> float:
        """The block's rank. It holds until the block is used, or the epoch changes."""
        ...

    def epoch(self, now_s: float) -> int:
        """Changes when ranks of blocks that were not used have changed in their order."""
        ...

    def evicted(self, block: Block) -> None:
        """The block is no longer stored."""
        ...
