"""KvFeed: the cache events of one rank of an engine, in the terms of the directory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

import msgspec

from mileage.policy.prefix_directory.directory import BlockDirectory, Owner
from mileage.policy.prefix_directory.hot_prefixes import HotPrefixes
from mileage.policy.prefix_directory.sequence import EventSequence

__all__ = ["AllBlocksCleared", "BlockRemoved", "BlockStored", "EngineHash", "KvEvent", "KvFeed"]

EngineHash: TypeAlias = bytes | int
_DEFAULT_MEDIUM = "GPU"
_TOKEN_BYTES = 8
_HASHES_MAX = 4_000_000
_NOWHERE: frozenset[str] = frozenset()


class BlockStored(msgspec.Struct, frozen=True, tag=True):
    """Blocks, each behind the one before it, are in the cache now."""

    block_hashes: list[EngineHash]
    parent_block_hash: EngineHash | None = None
    token_ids: list[int] = []
    block_size: int = 0
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None
    group_idx: int | None = None


class BlockRemoved(msgspec.Struct, frozen=True, tag=True):
    """Blocks were evicted."""

    block_hashes: list[EngineHash]
    medium: str | None = None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, frozen=True, tag=True):
    """The cache is empty."""


KvEvent: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared


class KvFeed:
    """Applies the events of one rank to a directory.

    Engines hash with a seed of their own, so that one prompt has other hashes in each of them. In
    the directory a block is known by what it holds: a chain of its tokens and those before it, with
    the adapter and whatever else the engine says that it depends on, the salt among it. Blocks
    behind a parent that is not known, from before we listened, are left out: their beginning is not
    known. Events of groups other than the first repeat the same tokens for other layers.
    """

    def __init__(
        self,
        directory: BlockDirectory,
        replica: str,
        rank: int,
        memory: HotPrefixes | None = None,
    ) -> None:
        """`memory` is told of blocks that depend on nothing but their tokens."""
        self._memory = memory
        self.now_s = 0.0
        """When the events that are applied next were heard; for `memory`."""
        self.sequence = EventSequence()
        self._directory, self._replica, self._rank = directory, replica, rank
        self._ids: dict[EngineHash, tuple[int, frozenset[str]]] = {}
        """Of each hash of the engine: the block's id, and in which memories it is."""
        self.block_tokens = 0
        """Of the engine's blocks; 0 until it has stored one."""
        self.cleared_total = 0
        """How often it was emptied."""
        self.unknown_total = 0
        """Blocks of which nothing could be said."""
        self.evicting = False
        """It has given up blocks to make room since it was empty: it is full."""

    @property
    def stored_tokens(self) -> int:
        """Tokens that it holds, in all its memories; each counts once."""
        return len(self._ids) * self.block_tokens

    def apply(self, events: Iterable[KvEvent]) -> None:
        """The events of one batch, in order."""
        for event in events:
            if isinstance(event, BlockStored):
                self._stored(event)
            elif isinstance(event, BlockRemoved):
                self._removed(event)
            else:
                self.clear()

    def clear(self) -> None:
        """It holds nothing: it says so, or was started anew."""
        self._ids.clear()
        self.cleared_total += 1
        self.evicting = False
        self._directory.cleared(self._replica, self._rank)
        if self._memory is not None:
            self._memory.cleared()

    def _stored(self, event: BlockStored) -> None:
        size = event.block_size
        if event.group_idx or size < 1 or len(event.token_ids) < size * len(event.block_hashes):
            self.unknown_total += len(event.block_hashes)
            return
        self.block_tokens = size
        medium = event.medium or _DEFAULT_MEDIUM
        parent = 0
        if event.parent_block_hash is not None:
            known = self._ids.get(event.parent_block_hash)
            if known is None:
                self.unknown_total += len(event.block_hashes)
                return
            parent = known[0]
        found, behind = [], parent
        texts = []
        for index, engine_hash in enumerate(event.block_hashes):
            extra = _item(event.extra_keys, index)
            tokens = event.token_ids[index * size : (index + 1) * size]
            if extra is None:
                texts.append(tokens)
            parent = _content_id(parent, tokens, event.lora_name, extra)
            found.append(parent)
            _, memories = self._ids.get(engine_hash, (0, _NOWHERE))
            self._ids[engine_hash] = (parent, memories | {medium})
        self._directory.stored(self._owner(medium), found)
        # A salt or media make some blocks depend on more, and all that come behind them.
        plain = event.lora_name is None and len(texts) == len(found)
        if self._memory is not None and plain and medium == _DEFAULT_MEDIUM:
            self._memory.stored(behind, found, texts, self.now_s)
        if len(self._ids) > _HASHES_MAX:
            self.clear()  # no engine has as many: removals must have been lost

    def _removed(self, event: BlockRemoved) -> None:
        if event.group_idx:
            return
        found, medium = [], event.medium or _DEFAULT_MEDIUM
        for engine_hash in event.block_hashes:
            known = self._ids.get(engine_hash)
            if known is None:
                self.unknown_total += 1
                continue
            block, memories = known
            found.append(block)
            if memories - {medium}:
                self._ids[engine_hash] = (block, memories - {medium})
            else:
                del self._ids[engine_hash]
        self.evicting = self.evicting or bool(found)
        self._directory.removed(self._owner(medium), found)
        if self._memory is not None and medium == _DEFAULT_MEDIUM:
            self._memory.removed(found)

    def _owner(self, medium: str) -> Owner:
        return Owner(self._replica, self._rank, medium)


def _item(keys: Sequence[object] | None, index: int) -> object:
    return None if keys is None or index >= len(keys) else keys[index]


def _content_id(parent: int, tokens: Sequence[int], lora: str | None, extra: object) -> int:
    """The id of a block behind its parent. Tokens are below 2**63, as ids of engines are."""
    chain = blake2b(digest_size=8)
    chain.update(parent.to_bytes(8, "little"))
    chain.update(f"{lora or ''}\n{extra!r}\n".encode())
    for token in tokens:
        chain.update((token & (2**64 - 1)).to_bytes(_TOKEN_BYTES, "little"))
    return int.from_bytes(chain.digest(), "little") >> 1
