"""Warm-up: in which order and pieces the blocks of a cache are loaded again after a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from mileage.core.bounds import require_at_least, require_range
from mileage.policy.eviction.policy import Block

__all__ = ["CachedBlock", "WarmupChunk", "WarmupConfig", "WarmupQueue", "plan_warmup"]


class WarmupConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a cache is warmed up. Raises ConfigError for what cannot be."""

    chunk_bytes: int = 64_000_000
    """Blocks are loaded in pieces of at most this size, or one block where that is larger."""
    concurrency: int = 4
    """Pieces that are loaded at a time: so many are in memory that cannot be used yet."""
    load_ratio: float = 1.0
    """The share of the blocks, by bytes, that is loaded at all."""
    hot_ratio: float = 0.25
    """The share of all blocks that is loaded by heat; the others follow, the last used first."""

    def __post_init__(self) -> None:
        require_at_least("warmup.chunk_bytes", self.chunk_bytes, 1)
        require_range("warmup.concurrency", self.concurrency, 1, 1024)
        require_range("warmup.load_ratio", self.load_ratio, 0.0, 1.0)
        require_range("warmup.hot_ratio", self.hot_ratio, 0.0, 1.0)


class CachedBlock(NamedTuple):
    """A block that was stored when the cache was last seen; its parent was, too."""

    block: Block
    parent: Block | None
    heat: float
    """Its rank by the eviction policy: the higher the sooner it is needed."""
    used_s: float
    size_bytes: int


class WarmupChunk(NamedTuple):
    """What is loaded at once."""

    blocks: tuple[Block, ...]
    sizes_bytes: tuple[int, ...]
    """Of each block."""

    @property
    def size_bytes(self) -> int:
        """Of all of them."""
        return sum(self.sizes_bytes)

    def only(self, wanted: Callable[[Block], bool]) -> WarmupChunk:
        """The chunk without the blocks that are not wanted."""
        kept = [i for i, block in enumerate(self.blocks) if wanted(block)]
        return WarmupChunk(
            tuple(self.blocks[i] for i in kept), tuple(self.sizes_bytes[i] for i in kept)
        )


def plan_warmup(blocks: Iterable[CachedBlock], config: WarmupConfig) -> list[WarmupChunk]:
    """Chunks in the order of being loaded; every block comes after its parent.

    The hottest blocks come first, each after those of its ancestors that are not planned yet:
    without them it would be of no use. The shares of bytes are exceeded by less than one block.
    """
    known = {block.block: block for block in blocks}
    total = sum(block.size_bytes for block in known.values())
    order: list[CachedBlock] = []
    planned: set[Block] = set()
    taken = 0
    by_heat = sorted(known.values(), key=lambda b: (-b.heat, -b.used_s))
    by_recency = sorted(known.values(), key=lambda b: (-b.used_s, -b.heat))
    load_bytes = config.load_ratio * total
    hot_bytes = min(config.hot_ratio * total, load_bytes)
    for candidates, until_bytes in ((by_heat, hot_bytes), (by_recency, load_bytes)):
        for candidate in candidates:
            for block in _unplanned_path(candidate, known, planned):
                if taken >= until_bytes:
                    break
                planned.add(block.block)
                order.append(block)
                taken += block.size_bytes
            if taken >= until_bytes:
                break
    return _chunks(order, config.chunk_bytes)


def _unplanned_path(
    block: CachedBlock, known: dict[Block, CachedBlock], planned: set[Block]
) -> list[CachedBlock]:
    """The block after those of its ancestors that are not planned, root first."""
    path = []
    at: CachedBlock | None = block
    while at is not None and at.block not in planned:
        path.append(at)
        at = None if at.parent is None else known[at.parent]
    path.reverse()
    return path


def _chunks(order: Sequence[CachedBlock], chunk_bytes: int) -> list[WarmupChunk]:
    chunks: list[WarmupChunk] = []
    held: list[CachedBlock] = []
    size = 0
    for block in order:
        if held and size + block.size_bytes > chunk_bytes:
            chunks.append(_chunk(held))
            held, size = [], 0
        held.append(block)
        size += block.size_bytes
    if held:
        chunks.append(_chunk(held))
    return chunks


def _chunk(held: Sequence[CachedBlock]) -> WarmupChunk:
    return WarmupChunk(tuple(b.block for b in held), tuple(b.size_bytes for b in held))


class WarmupQueue:
    """Hands chunks out, a bounded number at a time, and gives their blocks back in order.

    Chunks may be finished in any order. Blocks are given back only when all chunks before theirs
    are done, so that no block is stored before its parent. A chunk that could not be loaded takes
    all that would follow its blocks with it; the caller leaves out blocks whose parent is missing.
    """

    def __init__(self, chunks: Sequence[WarmupChunk], config: WarmupConfig) -> None:
        self._chunks, self._concurrency = chunks, config.concurrency
        self._planned = self._begun = self._given = 0
        self._loading: dict[int, WarmupChunk] = {}
        self._done: dict[int, bool] = {}
        self.staged_bytes = 0
        """In memory, or on the way to it, and not given back yet."""
        self.staged_bytes_max = 0

    @property
    def finished(self) -> bool:
        """Whether every chunk was given back, or left out."""
        return self._planned == len(self._chunks) and not self._loading

    def begin(
        self, wanted: Callable[[Block], bool] | None = None
    ) -> tuple[int, WarmupChunk] | None:
        """The next chunk to be loaded, with its number; None where enough are on their way.

        Blocks that are not `wanted` any more are left out of it: that were computed meanwhile, say.
        A chunk of which nothing is left is passed over.
        """
        # Those that wait for an earlier one are in memory too, and count.
        while self._planned < len(self._chunks) and len(self._loading) < self._concurrency:
            chunk = self._chunks[self._planned]
            self._planned += 1
            if wanted is not None:
                chunk = chunk.only(wanted)
            if not chunk.blocks:
                continue
            number = self._begun
            self._begun += 1
            self._loading[number] = chunk
            self.staged_bytes += chunk.size_bytes
            self.staged_bytes_max = max(self.staged_bytes_max, self.staged_bytes)
            return number, chunk
        return None

    def done(self, number: int, *, loaded: bool = True) -> list[Block]:
        """A chunk was loaded, or could not be; gives blocks that can be stored now, in order."""
        self._done[number] = loaded
        ready: list[Block] = []
        while self._given in self._done:
            chunk = self._loading.pop(self._given)
            if self._done.pop(self._given):
                ready.extend(chunk.blocks)
            self.staged_bytes -= chunk.size_bytes
            self._given += 1
        return ready
