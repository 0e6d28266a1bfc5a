"""RankedPool: a KV pool whose blocks are overwritten in the order of an eviction policy."""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable
from typing import Final

from mileage.policy.eviction.choose import EvictionConfig, make_eviction
from mileage.policy.eviction.policy import BlockUse
from mileage.sim.kv_pool import KvPool
from mileage.sim.sequence import Sequence

__all__ = ["RankedPool"]

_NOBODY: Final = -1


class RankedPool(KvPool):
    """As `KvPool`, but the unit that the policy ranks lowest goes first, of equals the deepest; and
    none while another that may go follows it.

    The policy is told of a request's prompt whenever it begins. What an answer added to a prompt
    goes by the rank of that prompt's last unit, and before it; where none of a prompt is known it
    goes before all others.
    """

    __slots__ = (
        "_children",
        "_depths",
        "_epoch",
        "_heap",
        "_numbers",
        "_parents",
        "_policy",
        "_pushed",
        "_ranked_by",
        "_tickets",
    )

    def __init__(self, blocks: int, block_tokens: int, config: EvictionConfig) -> None:
        super().__init__(blocks, block_tokens, caching=True)
        self._policy = make_eviction(config, blocks_max=blocks)
        self._epoch: int | None = None
        self._numbers: dict[Hashable, int] = {}
        """Policies know a unit by a number. Numbers of units that are gone are kept: they may come
        again, and policies remember them."""
        self._parents: dict[Hashable, Hashable] = {}
        """Of a known unit the one before it."""
        self._children: dict[Hashable, int] = {}
        """Of a known unit the known ones that follow it."""
        self._ranked_by: dict[Hashable, int] = {}
        self._depths: dict[Hashable, int] = {}
        self._heap: list[tuple[float, int, int, Hashable]] = []
        self._tickets: dict[Hashable, int] = {}
        """Of a free unit the entry of the heap that counts; none: others follow it."""
        self._pushed = 0

    # --- sequences ----------------------------------------------------------------------------

    def start(self, sequence: Sequence, found: int) -> None:
        """The sequence begins, and shares the units found."""
        if sequence.keys:
            chain = [self._number(key) for key in sequence.keys]
            self._policy.use(BlockUse(chain, len(chain)), self.now_s)
        super().start(sequence, found)
        for key in sequence.owned:
            self._tickets.pop(key, None)

    def grow(self, sequence: Sequence, tokens: int) -> None:
        """The sequence computes up to so many tokens: it takes blocks, and its full units are
        known from now on."""
        before, start = len(sequence.owned), sequence.registered
        super().grow(sequence, tokens)
        if len(sequence.owned) == before:
            return
        new = set(sequence.owned[before:])
        for depth in range(start, sequence.registered):
            key = sequence.keys[depth]
            if key not in new:
                continue
            self._ranked_by[key], self._depths[key] = self._number(key), depth
            if depth and self._known(parent := sequence.keys[depth - 1]):
                self._parents[key] = parent
                self._children[parent] = self._children.get(parent, 0) + 1

    def release(self, sequence: Sequence, tokens: int, extra: int = 0) -> None:
        """The sequence gives back the blocks of its `tokens` tokens, and `extra` empty ones."""
        owned = sequence.owned
        super().release(sequence, tokens, extra)
        for key in owned:
            if key in self._freed:
                self._offer(key)
        for key in sequence.keys[len(owned) :]:
            if not self._known(key):  # its prompt was not computed to the end
                self._policy.evicted(self._number(key))

    def _keep(self, sequence: Sequence, blocks: int) -> None:
        key, keys = object(), sequence.keys
        self._freed[key] = blocks
        self._ranked_by[key] = self._number(keys[-1]) if keys else _NOBODY
        self._depths[key] = len(keys)
        self._offer(key)

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _known(self, key: Hashable) -> bool:
        return key in self._held or key in self._freed

    # --- eviction -----------------------------------------------------------------------------

    def _rank(self, key: Hashable) -> float:
        number = self._ranked_by[key]
        return -math.inf if number == _NOBODY else self._policy.rank(number)

    def _offer(self, key: Hashable) -> None:
        """A free unit may go, unless others follow it."""
        if self._children.get(key):
            return
        self._pushed += 1
        self._tickets[key] = self._pushed
        heapq.heappush(self._heap, (self._rank(key), -self._depths[key], self._pushed, key))

    def _evict(self, blocks: int) -> None:
        epoch = self._policy.epoch(self.now_s)
        if epoch != self._epoch:
            self._epoch = epoch
            self._heap.clear()
            for key in self._freed:
                self._offer(key)
        while self.blank < blocks:
            key = self._lowest()
            size, missing = self._freed.pop(key), blocks - self.blank
            if type(key) is object and size > missing:  # content of no name goes block by block
                self._freed[key] = size - missing
                self._offer(key)
                self.blank += missing
                return
            self.blank += size
            self._forget(key, size)

    def clear(self) -> None:
        """Nothing of what no sequence has is known any more."""
        told, self.on_lost = self.on_lost, None
        for key in list(self._freed):
            size = self._freed.pop(key)
            self.blank += size
            self._forget(key, size)
        self._heap.clear()
        self._tickets.clear()
        self.on_lost = told

    def _lowest(self) -> Hashable:
        """The free unit that goes next."""
        heap = self._heap
        while heap:
            rank, _, ticket, key = heapq.heappop(heap)
            if self._tickets.get(key) != ticket:
                continue
            del self._tickets[key]
            if self._children.get(key):
                continue  # it is offered again with the last of those that follow it
            if self._rank(key) == rank:
                return key
            self._offer(key)
        return next(iter(self._freed))  # those that follow it are in use by who computed them too

    def _forget(self, key: Hashable, size: int) -> None:
        number = self._ranked_by.pop(key)
        del self._depths[key]
        self._children.pop(key, None)
        if type(key) is object:
            return
        self.evicted += 1
        self._policy.evicted(number)
        self._lost(key, size)
        parent = self._parents.pop(key, None)
        if parent is None or parent not in self._children:
            return
        self._children[parent] -= 1
        if not self._children[parent]:
            del self._children[parent]
            if parent in self._freed:
                self._offer(parent)
