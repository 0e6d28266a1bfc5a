"""KvTiers: memory behind the GPU's KV cache, and the way of its blocks back."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable
from collections.abc import Sequence as Items

from mileage.sim.engine_features import KvTierConfig
from mileage.sim.kv_pool import KvPool
from mileage.sim.sequence import Sequence

__all__ = ["KvTiers"]


class _Tier:
    __slots__ = ("config", "free", "link_free_s", "units")

    def __init__(self, config: KvTierConfig) -> None:
        self.config = config
        self.free = config.blocks
        self.units: OrderedDict[Hashable, int] = OrderedDict()
        """Blocks of each unit, the least recently used first."""
        self.link_free_s = 0.0


class KvTiers:
    """Each tier keeps whole units, the most recently used ones; what one gives up the next one has.

    What is loaded stays where it was. Loads of a tier go one after the other over its link, and
    storing takes no time, as it goes the other way and nobody waits for it.
    """

    __slots__ = ("_due", "_order", "_tiers", "loading")

    def __init__(self, configs: Items[KvTierConfig], pool: KvPool) -> None:
        self._tiers = [_Tier(config) for config in configs]
        self._due: list[tuple[float, int, Sequence]] = []
        self._order = 0
        self.loading: dict[Sequence, None] = {}
        """Sequences whose blocks are on their way."""
        if self._tiers[0].config.store == "computed":
            pool.on_stored = self._store
        else:
            pool.on_lost = self._store

    def restart(self) -> None:
        """The host's memory, the first tier, is empty."""
        self._tiers[0].units.clear()
        self._tiers[0].free = self._tiers[0].config.blocks

    def _store(self, key: Hashable, blocks: int) -> None:
        given = [(key, blocks)]
        for tier in self._tiers:
            lost: list[tuple[Hashable, int]] = []
            for unit, size in given:
                if size > tier.config.blocks:
                    continue
                if unit in tier.units:
                    tier.units.move_to_end(unit)
                    continue
                while tier.free < size:
                    out, room = tier.units.popitem(last=False)
                    tier.free += room
                    lost.append((out, room))
                tier.units[unit] = size
                tier.free -= size
            given = lost

    def follow(self, sequence: Sequence, found: int) -> int:
        """Units that a tier has of those that follow the `found` ones of the sequence's prompt, at
        most all but its last token."""
        if not sequence.keys:
            return 0
        count, most = 0, (sequence.target - 1) // sequence.unit_tokens
        for key in sequence.keys[found:most]:
            if not any(key in tier.units for tier in self._tiers):
                break
            count += 1
        return count

    def load(self, sequence: Sequence, keys: Items[Hashable], now_s: float) -> None:
        """These units come for the sequence, each from the nearest tier that has it."""
        ready_s = now_s
        left = list(keys)
        for tier in self._tiers:
            here = [key for key in left if key in tier.units]
            if not here:
                continue
            left = [key for key in left if key not in tier.units]
            for key in here:
                tier.units.move_to_end(key)
            blocks = sum(tier.units[key] for key in here)
            config = tier.config
            tier.link_free_s = max(now_s, tier.link_free_s) + blocks * config.block_load_s
            ready_s = max(ready_s, tier.link_free_s + config.latency_s)
        self._order += 1
        self.loading[sequence] = None
        heapq.heappush(self._due, (ready_s, self._order, sequence))

    def drop(self, sequence: Sequence) -> None:
        """Nobody waits any more for what comes for the sequence."""
        del self.loading[sequence]

    @property
    def next_s(self) -> float:
        """When the next load is complete; there must be one."""
        while self._due[0][2] not in self.loading:
            heapq.heappop(self._due)
        return self._due[0][0]

    def ready(self, now_s: float) -> list[Sequence]:
        """Those whose blocks are there by now."""
        ready = []
        while self.loading and self.next_s <= now_s:
            sequence = heapq.heappop(self._due)[2]
            self.drop(sequence)
            ready.append(sequence)
        return ready
