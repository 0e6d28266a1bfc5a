"""Return-aware eviction: keeps what comes back soon, though newer blocks have come since."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_up_to
from mileage.policy.eviction.gap_median import GapMedian
from mileage.policy.eviction.hint_rates import HintRates
from mileage.policy.eviction.policy import Block, BlockUse
from mileage.policy.eviction.return_rates import ReturnRates
from mileage.policy.eviction.rivals import Rivals
from mileage.policy.eviction.shadow import sampled

__all__ = ["ReturnAwareConfig", "ReturnAwareEviction"]

_MEMORY_BLOCKS: Final = 32_768
"""Gaps, weighted by blocks, after which the older ones count half."""
_MEMORY_REQUESTS: Final = 4096
"""Requests of a kind after which the older ones count half."""
_MEMORY_HINTS: Final = 1024
"""Hints of a tenth after which the older ones count half."""
_GAPS_MIN_BLOCKS: Final = 256
_REQUESTS_PER_LESSON: Final = 32
_PARTIAL_MIN: Final = 0.25
"""Partial blocks are stored where they come back at least so often, relative to all requests."""
_WEIGHT_MIN: Final = 0.02


class ReturnAwareConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the policy `return_aware`. Raises ConfigError for what cannot be."""

    half_life_gaps: float = 2.0
    """Heat halves in so many median gaps between a request and the one that goes on from it."""
    half_life_start_s: float = 300.0
    """The half-life until enough gaps were seen."""
    half_life_min_s: float = 1.0
    """The half-life is never shorter."""
    weight_max: float = 3.0
    """What a request can add to the heat of its blocks at most, where the mean adds 1."""
    ghosts_max: int = 131_072
    """Blocks whose heat is remembered after they were evicted; about 200 bytes each."""
    shadow_blocks: int = 128
    """Size of the sampled caches that compare with LRU; 0: never fall back to it."""

    def __post_init__(self) -> None:
        require_up_to("return_aware.half_life_gaps", self.half_life_gaps, 100.0)
        require_positive("return_aware.half_life_start_s", self.half_life_start_s)
        require_positive("return_aware.half_life_min_s", self.half_life_min_s)
        require_at_least("return_aware.weight_max", self.weight_max, 0.1)
        require_at_least("return_aware.ghosts_max", self.ghosts_max, 0)
        require_at_least("return_aware.shadow_blocks", self.shadow_blocks, 0)


class _Record:
    __slots__ = ("heat", "request", "sampled", "tip")

    def __init__(self, *, sampled: bool) -> None:
        self.sampled = sampled
        self.heat = -math.inf
        self.request = 0
        self.tip: _Tip | None = None


class _Tip(NamedTuple):
    """A request ended with this block, and none has gone on from there."""

    kind: int | None
    """None: the block is partial."""
    hint: int | None
    """The level of the caller's hint."""
    blocks: int
    used_s: float


class ReturnAwareEviction:
    """Decayed frequency of use, with weights and a half-life learned from the traffic itself.

    A conversation comes back after a minute or two. A small LRU has dropped it just then, for
    prompts that nobody will send again. Here every request heats its blocks, and heat halves in
    twice the median gap. How much it heats them depends on how often others go on from requests of
    its kind (`ReturnRates`; the square root, for a rate is learned from few cases), and on the
    caller's hint, as far as such hints were right (`HintRates`). Heat outlives eviction.

    Decay is common to all blocks, so it never changes their order, whatever the half-life: ranked
    is log(heat) + the decay of all time up to the last use. When the half-life changes, that sum
    merely grows at another speed from then on, and no stored rank becomes wrong.

    A partial block is not stored, unless partial blocks are seen to come back. Where a sample of
    the blocks shows that LRU would hit more, blocks are ranked as LRU ranks them until it no longer
    does.
    """

    def __init__(self, config: ReturnAwareConfig, *, blocks_max: int) -> None:
        self._config = config
        self._records: dict[Block, _Record] = {}
        self._ghosts: OrderedDict[Block, _Record] = OrderedDict()
        self._rates = ReturnRates(memory_requests=_MEMORY_REQUESTS)
        self._hints = HintRates(memory_hints=_MEMORY_HINTS)
        self._partials = self._partials_returned = 0.0
        self._gaps = GapMedian(memory_gaps=_MEMORY_BLOCKS)
        self._one_in = max(1, blocks_max // max(1, config.shadow_blocks))
        self._rivals = None
        if config.shadow_blocks:
            self._rivals = Rivals(blocks_max=math.ceil(blocks_max / self._one_in))
        self._half_life_s = config.half_life_start_s
        self._requests = 0
        self._decayed = 0.0
        self._now_s: float | None = None

    @property
    def half_life_s(self) -> float:
        """The time in which heat halves now."""
        return self._half_life_s

    @property
    def falls_back(self) -> bool:
        """Whether blocks are ranked as LRU ranks them."""
        return self._rivals is not None and self._rivals.lru_leads

    def use(self, use: BlockUse, now_s: float) -> int:
        """Heat the chain's blocks; gives how many are worth storing."""
        self._requests += 1
        if self._requests % _REQUESTS_PER_LESSON == 0:
            self._learn_half_life()
        self._pass_time(now_s)
        chain, whole = use.chain, use.whole
        records = self._records_of(chain)
        known = next((i for i, r in enumerate(records) if r.heat == -math.inf), len(records))
        kind = ReturnRates.kind(whole, min(known, whole))
        self._learn_returns(records[:known], now_s)
        self._heat(records, self._weight(kind, use.returns_ratio))
        self._await_return(records, use, kind, now_s)
        keep = len(chain) if self._stores_partials() else whole
        if self._rivals is not None:
            for depth, record in enumerate(records):
                if record.sampled:
                    store = depth < keep
                    self._rivals.use(chain[depth], record.heat, record.request, depth, store=store)
            self._rivals.judge()
        return keep

    def rank(self, block: Block) -> float:
        """log(heat) and all decay up to its last use; as LRU while it leads."""
        record = self._records.get(block) or self._ghosts.get(block)
        if record is None:
            return -math.inf
        return record.request if self.falls_back else record.heat

    def epoch(self, now_s: float) -> int:
        """Changes when LRU takes the lead, or loses it."""
        return 0 if self._rivals is None else self._rivals.changes

    def evicted(self, block: Block) -> None:
        """Its heat is remembered, and that of the block that was evicted first is forgotten."""
        record = self._records.pop(block, None)
        if record is None:
            return
        self._ghosts[block] = record
        if len(self._ghosts) > self._config.ghosts_max:
            self._ghosts.popitem(last=False)

    def _records_of(self, chain: Sequence[Block]) -> list[_Record]:
        """The chain's records; ghosts return, and new ones have no heat yet."""
        found = list(map(self._records.get, chain))
        return [r if r is not None else self._record(b) for r, b in zip(found, chain, strict=True)]

    def _record(self, block: Block) -> _Record:
        record = self._ghosts.pop(block, None)
        if record is None:
            wanted = self._rivals is not None and sampled(block, self._one_in)
            record = _Record(sampled=wanted)
        self._records[block] = record
        return record

    def _await_return(
        self, records: Sequence[_Record], use: BlockUse, kind: int, now_s: float
    ) -> None:
        whole, hint = use.whole, None
        if whole:
            if use.returns_ratio is not None:
                hint = HintRates.level(use.returns_ratio)
                self._hints.asked(hint)
            self._rates.asked(kind)
            records[whole - 1].tip = _Tip(kind, hint, whole, now_s)
        if whole < len(records):
            self._partials += 1
            records[-1].tip = _Tip(None, None, 1, now_s)

    def _learn_returns(self, known: Sequence[_Record], now_s: float) -> None:
        for record in known:
            tip = record.tip
            if tip is None:
                continue
            record.tip = None
            if tip.kind is None:
                self._partials_returned += 1
            else:
                self._rates.returned(tip.kind)
                if tip.hint is not None:
                    self._hints.returned(tip.hint)
                self._gaps.add(now_s - tip.used_s, tip.blocks)

    def _weight(self, kind: int, returns_ratio: float | None) -> float:
        relative, mean = self._rates.relative(kind), self._rates.mean()
        weight = math.sqrt(relative)
        if returns_ratio is not None:
            weight *= self._hints.relative(returns_ratio, kind_rate=relative * mean, mean_rate=mean)
        return min(max(weight, _WEIGHT_MIN), self._config.weight_max)

    def _heat(self, records: Sequence[_Record], weight: float) -> None:
        exp, log1p, number = math.exp, math.log1p, self._requests
        fresh = self._decayed + math.log(weight)
        before = after = math.nan
        for record in records:
            if record.heat != before:  # blocks of one conversation mostly share their heat
                before = record.heat
                high, low = (before, fresh) if before > fresh else (fresh, before)
                after = high + log1p(exp(low - high))
            record.heat = after
            record.request = number

    def _stores_partials(self) -> bool:
        return self._partials_returned > _PARTIAL_MIN * self._rates.mean() * (self._partials + 1)

    def _pass_time(self, now_s: float) -> None:
        if self._now_s is not None and now_s > self._now_s:
            self._decayed += math.log(2) / self._half_life_s * (now_s - self._now_s)
        self._now_s = now_s

    def _learn_half_life(self) -> None:
        median_s = self._gaps.median_s(samples_min=_GAPS_MIN_BLOCKS)
        if median_s is not None:
            wanted_s = self._config.half_life_gaps * median_s
            self._half_life_s = max(self._config.half_life_min_s, wanted_s)
