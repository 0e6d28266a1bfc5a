"""PrefixChoice: the replica where a request costs least, after what each one has cached of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, TypeVar

from mileage.policy.cached_prefixes import HEAT_HALF_LIFE_S
from mileage.policy.load import PREFILL_COST_BUSY, ReplicaLoad

__all__ = ["HOT_FACTOR", "PrefixChoice", "work_after_hit"]

HOT_FACTOR: Final = 2.0
"""A replica that is out of KV cache counts as so much slower."""
_DEEPEST: Final = 2
_USED_RATIO: Final = 0.1
"""Below this share of its capacity a replica is not in use enough to be too hot."""
_WAIT_WEIGHT: Final = 0.2
"""A second of waiting behind others counts so much of a second of computing what another replica
has. Those before a request do not go first, but share each step with it, and what is computed twice
delays everybody; over the first quarter of the Mooncake trace 0.1 to 0.3 hit most."""

L = TypeVar("L", bound=ReplicaLoad)


def work_after_hit(work_tokens: float, hit_tokens: float) -> float:
    """The work of a request of which so many prompt tokens are cached (see `policy.load.work_of`).

    It is never less than a step: the last token of a prompt is always computed.
    """
    return max(1.0, work_tokens - PREFILL_COST_BUSY * hit_tokens)


class PrefixChoice:
    """Weighs what is cached against what is in flight, and keeps the replicas in balance.

    Looked at are the two replicas with the most of the prompt, and the better one of two drawn at
    random: that is where a prompt goes that nobody has, and what keeps several gateways from all
    running to one replica. Of these the one where it costs least gets the request: the time to
    compute what is not cached, and a part of the time that it would wait there. Of equals it is the
    one that was drawn.

    Left out are those that are too hot: that got more than `balance_max_ratio` times the mean of
    the work of about the last minute, this request included. A replica below a tenth of its
    capacity is never too hot: while nobody has to wait, caches alone decide.
    """

    __slots__ = ("_balance",)

    def __init__(self, balance_max_ratio: float) -> None:
        self._balance = balance_max_ratio

    def choose(
        self,
        loads: Sequence[L],
        drawn: L,
        work_tokens: float,
        blocks: Sequence[int],
        block_tokens: int,
        now_s: float,
    ) -> L:
        """One of `loads`, for a request of so much work; `drawn` is the better one of two."""
        hits = [(load.cached.match(blocks), load) for load in loads]
        deepest = sorted((h for h in hits if h[0]), key=lambda h: -h[0])[:_DEEPEST]
        contenders = [*(h for h in hits if h[1] is drawn), *deepest]
        heats = [load.cached.heat(now_s) for load in loads]
        total = sum(heats)
        chosen, best_s = None, math.inf
        for blocks_hit, load in contenders:
            work = work_after_hit(work_tokens, blocks_hit * block_tokens)
            after = load.cached.heat(now_s) + work
            mean = (total + work) / len(loads)
            if after > self._balance * mean and after > _used(load):
                continue
            cost_s = _WAIT_WEIGHT * load.wait_s(now_s) + work / load.work_per_s
            if load.hot:
                cost_s *= HOT_FACTOR
            if cost_s < best_s:
                chosen, best_s = load, cost_s
        if chosen is None:
            return min(zip(heats, range(len(loads)), loads, strict=True))[2]
        return chosen


def _used(load: ReplicaLoad) -> float:
    """The heat of a replica that is used to a tenth."""
    return _USED_RATIO * load.work_per_s * HEAT_HALF_LIFE_S / math.log(2.0)
