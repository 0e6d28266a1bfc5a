"""CachedPrefixes: which beginnings of prompts one replica's KV cache probably holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["BLOCKS_MAX", "HEAT_HALF_LIFE_S", "CachedPrefixes", "PrefixGuess"]

BLOCKS_MAX: Final = 32_768
HEAT_HALF_LIFE_S: Final = 60.0
"""Work that was sent counts half after this."""
_CAPACITY_MIN: Final = 16
_GAIN: Final = 0.1


class PrefixGuess(NamedTuple):
    """What was thought of a prompt when it was sent, in blocks."""

    hit: int
    """So many of its first blocks are cached."""
    hit_age: int
    """Blocks that have come to the replica since the last of these was used."""
    known: int
    """So many had been there before, cached still or not."""
    known_age: int


class CachedPrefixes:
    """A guess of what the cache holds: what was sent there last, as far as it has room.

    A prompt is known by its blocks: content ids, each of which stands for all of the prompt up to
    the end of its block. The age of a block is the number of blocks that were new to the replica
    since it was used; while that is below the cache's room, the block is taken to be there. A use
    of a prompt touches its blocks deepest first, so that none is older than those that follow it:
    those that are held are always the first ones of a prompt.

    The room is not known from outside. It begins with what the engine tells (`room`), and follows
    what answers report: where less was cached than was expected it shrinks towards the age of what
    was missing, where a block of a higher age was still there it grows to that.
    """

    __slots__ = ("_capacity", "_heat", "_heat_s", "_new", "_stamps", "_told", "blocks_max")

    def __init__(self, blocks_max: int = BLOCKS_MAX) -> None:
        self.blocks_max = blocks_max
        """More are never remembered."""
        self._stamps: OrderedDict[int, int] = OrderedDict()
        """Of each block, how many had been new when it was last used; the oldest first."""
        self._new = 0
        self._capacity: float | None = None
        self._told: int | None = None
        self._heat, self._heat_s = 0.0, 0.0

    def __len__(self) -> int:
        return len(self._stamps)

    @property
    def capacity(self) -> int:
        """Blocks that the cache is thought to have room for."""
        if self._capacity is None:
            return self.blocks_max
        return max(_CAPACITY_MIN, min(self.blocks_max, int(self._capacity)))

    def match(self, blocks: Sequence[int]) -> int:
        """How many of the prompt's first blocks are probably cached."""
        return self._match(blocks, self._new - self.capacity)

    def _match(self, blocks: Sequence[int], oldest: int) -> int:
        """How many of the first blocks were used since so many were new."""
        stamp_of = self._stamps.get
        low, high = 0, len(blocks)
        while low < high:
            middle = (low + high + 1) // 2
            stamp = stamp_of(blocks[middle - 1])
            if stamp is not None and stamp >= oldest:
                low = middle
            else:
                high = middle - 1
        return low

    def sent(self, blocks: Sequence[int]) -> PrefixGuess:
        """A request with this prompt was sent there; gives what was thought of it before."""
        stamps, new = self._stamps, self._new
        hit, known = self.match(blocks), self._match(blocks, -1)
        hit_age = new - stamps[blocks[hit - 1]] if hit else 0
        known_age = new - stamps[blocks[known - 1]] if known else 0
        self._new = new = new + len(blocks) - hit
        for block in reversed(blocks):
            stamps[block] = new
            stamps.move_to_end(block)
        while len(stamps) > self.blocks_max:
            stamps.popitem(last=False)
        return PrefixGuess(hit, hit_age, known, known_age)

    def answered(self, guess: PrefixGuess, cached_blocks: int) -> None:
        """An answer came: so many whole blocks of its prompt were cached.

        One block less than expected says nothing: the last token of a prompt is always computed.
        Neither does a miss of what is far too young to be evicted: its first request still ran.
        """
        capacity = self.capacity
        if cached_blocks < guess.hit - 1 and 2 * guess.hit_age >= capacity:
            self._capacity = capacity + _GAIN * (guess.hit_age - capacity) - 1
        elif cached_blocks >= guess.known - 1 and guess.known_age > capacity:
            self._capacity = capacity + _GAIN * (guess.known_age - capacity) + 1

    def room(self, tokens: int, block_tokens: int) -> None:
        """The engine tells the size of its cache; the same again changes nothing."""
        if tokens != self._told and block_tokens > 0:
            self._told = tokens
            self._capacity = tokens / block_tokens

    def clear(self) -> None:
        """The cache is empty: the engine was started anew, or has dropped it."""
        self._stamps.clear()
        self._capacity = self._told = None

    def worked(self, work_tokens: float, now_s: float) -> None:
        """So much work was sent there."""
        self._heat = self.heat(now_s) + work_tokens
        self._heat_s = now_s

    def heat(self, now_s: float) -> float:
        """Work sent there, older work counting less: half after `HEAT_HALF_LIFE_S`."""
        if self._heat == 0.0:
            return 0.0
        return float(self._heat * 0.5 ** (max(0.0, now_s - self._heat_s) / HEAT_HALF_LIFE_S))
