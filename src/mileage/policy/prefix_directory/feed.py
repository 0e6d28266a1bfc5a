"""KvFeed: the cache events of one rank of an engine, in the terms of the directory."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any, TypeAlias

import msgspec

from mileage.policy.prefix_directory.directory import BlockDirectory, Owner
from mileage.policy.prefix_directory.hot_prefixes import HotPrefixes
from mileage.policy.prefix_directory.sequence import EventSequence

__all__ = ["AllBlocksCleared", "BlockRemoved", "BlockStored", "EngineHash", "KvEvent", "KvFeed"]

EngineHash: TypeAlias = bytes | int
_DEFAULT_MEDIUM = "GPU"
_HASHES_MAX = 1_000_000
_PART_BLOCKS = 256
_PART_TOKENS = 16_384
_BLOCK_TOKENS_MAX = 65_536
_NAME_CHARS_MAX = 1024
_MEDIA_MAX = 8
_TOKEN_BITS = 2**64 - 1
_HASH_BYTES_MAX = 64
"""Engines have 8 or 32; each is kept for as long as its block is known."""


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

    No more than `hashes_max` blocks are known, some 210 bytes each: beyond that the oldest eighth
    is forgotten, here and in the directory, and counted in `forgotten_total`.
    """

    def __init__(
        self,
        directory: BlockDirectory,
        replica: str,
        rank: int,
        memory: HotPrefixes | None = None,
        hashes_max: int = _HASHES_MAX,
    ) -> None:
        """`memory` is told of blocks that depend on nothing but their tokens."""
        self._memory = memory
        self.now_s = 0.0
        """When the events that are applied next were heard; for `memory`."""
        self.sequence = EventSequence()
        self._directory, self._replica, self._rank = directory, replica, rank
        self._hashes_max = hashes_max
        self._bits: dict[str, int] = {}
        """Of each memory that it has named."""
        self._empty = False
        self._ids: dict[EngineHash, tuple[int, int]] = {}
        """Of each hash of the engine: the block's id, and the bits of the memories it is in."""
        self.block_tokens = 0
        """Of the engine's blocks; 0 until it has stored one."""
        self.cleared_total = 0
        """How often it was emptied."""
        self.unknown_total = 0
        """Blocks of which nothing could be said."""
        self.forgotten_total = 0
        """Blocks for which there was no room."""
        self.evicting = False
        """It has given up blocks to make room since it was empty: it is full."""

    @property
    def stored_tokens(self) -> int:
        """Tokens that it holds, in all its memories; each counts once."""
        return len(self._ids) * self.block_tokens

    def apply(self, events: Iterable[KvEvent]) -> None:
        """The events of one batch, in order."""
        for _ in self.steps(events):
            pass

    def steps(self, events: Iterable[KvEvent]) -> Iterator[int]:
        """Apply them a part at a time; gives after each as how many blocks it counts, at least 1.
        So a host can do something else between two parts, however long one event is."""
        for event in events:
            if isinstance(event, BlockStored):
                for stored in _parts(event):
                    self._stored(stored)
                    tokens = len(stored.token_ids)
                    yield max(1, len(stored.block_hashes), tokens * _PART_BLOCKS // _PART_TOKENS)
            elif isinstance(event, BlockRemoved):
                for at in range(0, len(event.block_hashes) or 1, _PART_BLOCKS):
                    removed = event.block_hashes[at : at + _PART_BLOCKS]
                    self._removed(removed, event)
                    yield len(removed) or 1
            else:
                self.clear()
                yield _PART_BLOCKS

    def clear(self) -> None:
        """It holds nothing: it says so, or was started anew."""
        self.cleared_total += 1
        if self._empty:
            return  # it takes a look at every block that is known
        self._empty = True
        self._ids.clear()
        self.evicting = False
        self._directory.cleared(self._replica, self._rank)
        if self._memory is not None:
            self._memory.cleared()

    def _stored(self, event: BlockStored) -> None:
        medium = event.medium or _DEFAULT_MEDIUM
        bit, parent = self._bit(medium), self._parent(event)
        told = _is_whole(event) and _are_short(event.block_hashes)
        if bit is None or parent is None or not told:
            self.unknown_total += len(event.block_hashes)
            return
        self._empty = False
        size = self.block_tokens = event.block_size
        found, behind = [], parent
        texts, past = [], []
        for index, engine_hash in enumerate(event.block_hashes):
            extra = _item(event.extra_keys, index)
            tokens = event.token_ids[index * size : (index + 1) * size]
            if extra is None:
                texts.append(tokens)
            parent = _content_id(parent, tokens, event.lora_name, extra)
            found.append(parent)
            known, bits = self._ids.get(engine_hash, (parent, 0))
            if known != parent:  # it stood for other content, which is not told of again
                past.append((known, bits))
                bits = 0
            self._ids[engine_hash] = (parent, bits | bit)
        self._directory.stored(self._owner(medium), found)
        for each in past:
            self._drop(*each)
        # A salt or media make some blocks depend on more, and all that come behind them.
        plain = event.lora_name is None and len(texts) == len(found)
        if self._memory is not None and plain and medium == _DEFAULT_MEDIUM:
            self._memory.stored(behind, found, texts, self.now_s)
        if len(self._ids) > self._hashes_max:
            self._forget()

    def _parent(self, event: BlockStored) -> int | None:
        """The id of the block that these are behind, 0 for none; None: it is not known."""
        if event.parent_block_hash is None:
            return 0
        return self._ids.get(event.parent_block_hash, (None, 0))[0]

    def _removed(self, hashes: Sequence[EngineHash], event: BlockRemoved) -> None:
        medium = event.medium or _DEFAULT_MEDIUM
        if event.group_idx:
            return
        bit = self._bits.get(medium)
        if bit is None:
            self.unknown_total += len(hashes)
            return
        found = []
        for engine_hash in hashes:
            known = self._ids.get(engine_hash)
            if known is None:
                self.unknown_total += 1
                continue
            block, bits = known
            found.append(block)
            if bits & ~bit:
                self._ids[engine_hash] = (block, bits & ~bit)
            else:
                del self._ids[engine_hash]
        self.evicting = self.evicting or bool(found)
        self._directory.removed(self._owner(medium), found)
        if self._memory is not None and medium == _DEFAULT_MEDIUM:
            self._memory.removed(found)

    def _forget(self) -> None:
        """The oldest ones, several so that it is not to be done for each block."""
        hashes = list(islice(self._ids, max(1, self._hashes_max // 8)))
        self.forgotten_total += len(hashes)
        for engine_hash in hashes:
            self._drop(*self._ids.pop(engine_hash))

    def _drop(self, block: int, bits: int) -> None:
        """It is in none of these memories, as far as will be known."""
        for medium, bit in self._bits.items():
            if bits & bit:
                self._directory.removed(self._owner(medium), (block,))
        if self._memory is not None:
            self._memory.removed((block,))

    def _bit(self, medium: str) -> int | None:
        """None: it is none of the engine's first few memories. Each is an owner for good."""
        if medium not in self._bits and len(self._bits) < _MEDIA_MAX:
            self._bits[medium] = 1 << len(self._bits)
        return self._bits.get(medium)

    def _owner(self, medium: str) -> Owner:
        return Owner(self._replica, self._rank, medium)


def _is_whole(event: BlockStored) -> bool:
    """Whether it says of each of its blocks, of the first group, which tokens it holds."""
    size, name = event.block_size, event.lora_name
    return (
        not event.group_idx
        and 1 <= size <= _BLOCK_TOKENS_MAX
        and 0 < len(event.block_hashes) * size <= len(event.token_ids)
        and (name is None or len(name) <= _NAME_CHARS_MAX)
    )


def _are_short(hashes: Iterable[EngineHash]) -> bool:
    return all(isinstance(each, int) or len(each) <= _HASH_BYTES_MAX for each in hashes)


def _parts(event: BlockStored) -> Iterator[BlockStored]:
    """A long event as several, each behind the one before it."""
    hashes, size, keys = event.block_hashes, event.block_size, event.extra_keys
    if not _is_whole(event):
        yield event
        return
    blocks = max(1, min(_PART_BLOCKS, _PART_TOKENS // size))
    if len(hashes) <= blocks:
        yield event
        return
    for at in range(0, len(hashes), blocks):
        to = at + blocks
        yield msgspec.structs.replace(
            event,
            block_hashes=hashes[at:to],
            parent_block_hash=hashes[at - 1] if at else event.parent_block_hash,
            token_ids=event.token_ids[at * size : to * size],
            extra_keys=None if keys is None else keys[at:to],
        )


def _item(keys: Sequence[object] | None, index: int) -> object:
    return None if keys is None or index >= len(keys) else keys[index]


def _content_id(parent: int, tokens: Sequence[int], lora: str | None, extra: object) -> int:
    """The id of a block behind its parent. Tokens are below 2**63, as ids of engines are."""
    chain = blake2b(digest_size=8)
    chain.update(parent.to_bytes(8, "little"))
    chain.update(f"{lora or ''}\n{extra!r}\n".encode())
    chain.update(struct.pack(f"<{len(tokens)}Q", *[token & _TOKEN_BITS for token in tokens]))
    return int.from_bytes(chain.digest(), "little") >> 1
