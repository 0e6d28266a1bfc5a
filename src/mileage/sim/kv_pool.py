"""KvPool: the blocks of a paged KV cache, and which of them hold prompts that may come again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

from mileage.sim.sequence import Sequence
from mileage.sim.step_math import blocks_of

__all__ = ["KvPool"]


class KvPool:
    """Counts blocks; known content lies in units of one or more blocks, by key.

    As vLLM's block pool does it: a block that a sequence gives back is free at once, but what is
    in it can be found again until it is taken. Blocks without content that could be known are taken
    first, then the least recently freed; of one sequence the tail before the head. A prefix is
    found as far as all its units are there. What an answer adds to a prompt is kept in the same
    order, but under no name: a trace does not tell what it was.
    """

    __slots__ = (
        "_block_tokens",
        "_caching",
        "_freed",
        "_held",
        "blank",
        "blocks",
        "evicted",
        "free",
        "free_min",
        "hit_tokens",
        "now_s",
        "on_lost",
        "on_stored",
        "query_tokens",
    )

    def __init__(self, blocks: int, block_tokens: int, *, caching: bool) -> None:
        self.blocks = self.free = self.blank = self.free_min = blocks
        """All; those that no sequence has; of them, those without content; the fewest ever free."""
        self._block_tokens = block_tokens
        self._caching = caching
        self._held: dict[Hashable, int] = {}
        """Sequences that share each unit."""
        self._freed: OrderedDict[Hashable, int] = OrderedDict()
        """Blocks of each unit that no sequence has, in the order of being taken."""
        self.evicted = 0
        """Units of known content that were overwritten."""
        self.query_tokens = self.hit_tokens = 0
        self.now_s = 0.0
        """The time, where the engine has eviction policies that ask for it."""
        self.on_stored: Callable[[Hashable, int], object] | None = None
        self.on_lost: Callable[[Hashable, int], object] | None = None
        """Told of each unit, and its blocks, that is known from now on, or no longer."""

    def take(self, blocks: int) -> None:
        """Give blocks to a sequence; so many must be free."""
        self.free -= blocks
        if self.free < self.free_min:
            self.free_min = self.free
        if blocks > self.blank:
            self._evict(blocks)
        self.blank -= blocks

    def _evict(self, blocks: int) -> None:
        freed = self._freed
        while self.blank < blocks:
            key, size = freed.popitem(last=False)
            if type(key) is object:  # content of no name goes block by block
                missing = blocks - self.blank
                if size > missing:
                    freed[key] = size - missing
                    freed.move_to_end(key, last=False)
                    size = missing
            else:
                self.evicted += 1
                self._lost(key, size)
            self.blank += size

    def _lost(self, key: Hashable, size: int) -> None:
        if self.on_lost is not None:
            self.on_lost(key, size)

    def clear(self) -> None:
        """Nothing of what no sequence has is known any more."""
        self.blank += sum(self._freed.values())
        self._freed.clear()

    # --- sequences ----------------------------------------------------------------------------

    def found(self, sequence: Sequence) -> int:
        """Units of the sequence's prompt that are there, at most all but its last token."""
        if not self._caching or not sequence.keys:
            return 0
        held, freed, count = self._held, self._freed, 0
        most = (sequence.target - 1) // sequence.unit_tokens
        for key in sequence.keys[:most]:
            if key not in held and key not in freed:
                break
            count += 1
        return count

    def admits(self, sequence: Sequence, found: int, tokens: int, spare: int) -> bool:
        """Whether blocks for `tokens` tokens are free beside `spare` more, with `found` units of
        its prompt there."""
        missing = blocks_of(tokens, self._block_tokens) + spare
        if found:
            held, size = self._held, sequence.unit_tokens // self._block_tokens
            missing -= size * sum(key in held for key in sequence.keys[:found])
        return missing <= self.free

    def start(self, sequence: Sequence, found: int) -> None:
        """The sequence begins, and shares the units found."""
        sequence.computed = sequence.registered = 0
        if not self._caching:
            return
        self.query_tokens += sequence.target
        if not sequence.keys:
            return
        sequence.owned = list(sequence.keys[:found])
        sequence.registered = found
        sequence.computed = found * sequence.unit_tokens
        self.hit_tokens += sequence.computed
        for key in sequence.owned:
            sharers = self._held.get(key)
            if sharers is None:
                self.free -= self._freed.pop(key)
                sharers = 0
            self._held[key] = sharers + 1
        if self.free < self.free_min:
            self.free_min = self.free

    def grow(self, sequence: Sequence, tokens: int) -> None:
        """The sequence computes up to so many tokens: it takes blocks, and its full units are
        known from now on."""
        blocks = blocks_of(tokens, self._block_tokens)
        blocks -= blocks_of(sequence.computed, self._block_tokens)
        if blocks:
            self.take(blocks)
        keys, unit = sequence.keys, sequence.unit_tokens
        if not keys or not self._caching:
            return
        held, freed, at = self._held, self._freed, sequence.registered
        while at < len(keys) and (at + 1) * unit <= tokens:
            key = keys[at]
            if key not in held and key not in freed:  # else another computes the same just now
                held[key] = 1
                sequence.owned.append(key)
                if self.on_stored is not None:
                    self.on_stored(key, unit // self._block_tokens)
            at += 1
        sequence.registered = at

    def release(self, sequence: Sequence, tokens: int, extra: int = 0) -> None:
        """The sequence gives back the blocks of its `tokens` tokens, and `extra` empty ones."""
        whole, part = divmod(tokens, self._block_tokens)
        empty = (part > 0) + extra
        owned = sequence.owned
        if owned:
            whole -= len(owned) * (sequence.unit_tokens // self._block_tokens)
        self.free += whole + empty
        if self._held or self._freed:
            self.blank += empty
            if whole:
                self._keep(sequence, whole)
        else:
            self.blank += whole + empty
        if owned:
            held, freed, size = self._held, self._freed, sequence.unit_tokens // self._block_tokens
            for key in reversed(owned):
                sharers = held[key] - 1
                if sharers:
                    held[key] = sharers
                else:
                    del held[key]
                    freed[key] = size
                    self.free += size
            sequence.owned = []

    def _keep(self, sequence: Sequence, blocks: int) -> None:
        """Blocks with what the sequence's answer added: content of no name."""
        self._freed[object()] = blocks

    def check(self) -> None:
        """Raises AssertionError where blocks were lost or made up: for tests."""
        assert self.free == self.blank + sum(self._freed.values())
        assert 0 <= self.blank <= self.free <= self.blocks
        assert not self._held.keys() & self._freed.keys()
