"""LRU-K with heat: ranks a block by how often it came back lately and how much it was used."""

from __future__ import annotations

import math
from collections import deque

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range
from mileage.policy.eviction.policy import Block, BlockUse

__all__ = ["LruKHeatConfig", "LruKHeatEviction"]

_RANKINGS_PER_HALF_LIFE = 16


class LruKHeatConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the policy `lru_k_heat`. Raises ConfigError for what cannot be."""

    alpha_ratio: float = 0.7
    """Weight of the rate of use (1 / mean interval, per second); the rest weighs the heat."""
    uses: int = 2
    """Of so many last uses the mean interval is taken: the K of LRU-K."""
    decay_ratio: float = 0.95
    """What is left of the heat after `decay_s`."""
    decay_s: float = 60.0
    """The time in which heat falls to `decay_ratio`: a decay without a unit of time is none."""

    def __post_init__(self) -> None:
        require_range("lru_k_heat.alpha_ratio", self.alpha_ratio, 0.0, 1.0)
        require_at_least("lru_k_heat.uses", self.uses, 2)
        require_range("lru_k_heat.decay_ratio", self.decay_ratio, 0.01, 0.9999)
        require_positive("lru_k_heat.decay_s", self.decay_s)


class _Record:
    __slots__ = ("heat", "times")

    def __init__(self, uses: int) -> None:
        self.heat = 0.0
        self.times: deque[float] = deque(maxlen=uses)


class LruKHeatEviction:
    """alpha / mean interval of the last K uses + (1 - alpha) * decayed sum of uses.

    A block used once has no interval, and counts with its heat alone. A block is known by its
    content and version (`ContentKey`): new weights make new blocks. The first term never ages, so a
    block that was used twice in quick succession stays long after it is cold.

    Since the terms age differently, the order of blocks at rest changes with time: all are ranked
    anew sixteen times per half-life of the heat, if something has to be evicted then.
    """

    __slots__ = ("_config", "_decay", "_period_s", "_ranked_s", "_records")

    def __init__(self, config: LruKHeatConfig) -> None:
        self._config = config
        self._decay = -math.log(config.decay_ratio) / config.decay_s
        self._period_s = math.log(2) / self._decay / _RANKINGS_PER_HALF_LIFE
        self._records: dict[Block, _Record] = {}
        self._ranked_s = 0.0

    def use(self, use: BlockUse, now_s: float) -> int:
        """One use more of each block; all are worth storing."""
        self.epoch(now_s)
        for block in use.chain:
            record = self._records.get(block)
            if record is None:
                record = self._records[block] = _Record(self._config.uses)
            else:
                record.heat *= math.exp(-self._decay * max(0.0, now_s - record.times[-1]))
            record.heat += 1.0
            record.times.append(now_s)
        return len(use.chain)

    def rank(self, block: Block) -> float:
        """The score at the time of the last ranking; 0 for a block that was never used."""
        record = self._records.get(block)
        if record is None:
            return 0.0
        times, alpha = record.times, self._config.alpha_ratio
        # Uses after the ranking are taken back to it: all ranks are of one moment.
        heat = record.heat * math.exp(-self._decay * (self._ranked_s - times[-1]))
        score = (1 - alpha) * heat
        if len(times) > 1:
            mean_s = (times[-1] - times[0]) / (len(times) - 1)
            score += alpha / max(mean_s, 1e-3)
        return score

    def epoch(self, now_s: float) -> int:
        """Changes sixteen times per half-life."""
        epoch = math.floor(now_s / self._period_s)
        self._ranked_s = epoch * self._period_s
        return epoch

    def evicted(self, block: Block) -> None:
        """Nothing is kept of it."""
        self._records.pop(block, None)
