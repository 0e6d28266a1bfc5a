"""LoRA adapters in virtual time: the keeper, LRU, and the best that could have been."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from mileage.policy.residency.adapters import AdapterConfig, LoraConfig
from mileage.policy.residency.keeper import AdapterChange, AdapterKeeper
from mileage.policy.residency.lru import LruResidency
from mileage.workload.synthetic.zipf import Zipf

__all__ = ["Outcome", "Use", "kept", "least_recent", "optimum", "uses"]

Use = tuple[float, str]
"""When a request comes, in seconds, and the adapter that it names."""
_LOOK_S = 1.0
_HURRY_S = 0.05


@dataclass(frozen=True, slots=True)
class Outcome:
    """`hits`: requests that found their adapter loaded; `waited_s`: what each of the others waited
    for its load; `swaps`: loads that took another's place."""

    requests: int
    hits: int
    loads: int
    swaps: int
    waited_s: tuple[float, ...] = ()

    @property
    def hit_ratio(self) -> float:
        """Hits of all requests."""
        return self.hits / self.requests


def uses(*, adapters: int, alpha: float, rate_per_s: float, requests: int, seed: int) -> list[Use]:
    """Requests that come as a Poisson process, for adapters a0, a1 ... of Zipf popularity."""
    rng, zipf, now_s = Random(seed), Zipf(adapters, alpha), 0.0
    found = []
    for _ in range(requests):
        now_s += rng.expovariate(rate_per_s)
        found.append((now_s, f"a{zipf.draw(rng) - 1}"))
    return found


def least_recent(sequence: Sequence[Use], slots: int) -> Outcome:
    """LRU, as engines do it by themselves: each miss loads, at once and in no time."""
    order, held, hits = LruResidency(), set[str](), 0
    for now_s, name in sequence:
        order.use(name, now_s)
        if name in held:
            hits += 1
            continue
        if len(held) >= slots:
            held.remove(order.leaves(sorted(held), now_s))
        held.add(name)
    loads = len(sequence) - hits
    return Outcome(len(sequence), hits, loads, max(0, loads - slots))


def optimum(sequence: Sequence[Use], slots: int) -> Outcome:
    """Belady's MIN, which knows the future: what is needed last makes room; each miss loads."""
    following, nexts = dict[str, int](), [math.inf] * len(sequence)
    for number in range(len(sequence) - 1, -1, -1):
        nexts[number] = following.get(sequence[number][1], math.inf)
        following[sequence[number][1]] = number
    held, hits = dict[str, float](), 0
    for number, (_, name) in enumerate(sequence):
        if name in held:
            hits += 1
        elif len(held) >= slots:
            del held[max(held, key=lambda each: held[each])]
        held[name] = nexts[number]
    loads = len(sequence) - hits
    return Outcome(len(sequence), hits, loads, max(0, loads - slots))


def kept(
    sequence: Sequence[Use], slots: int, *, load_s: float, config: LoraConfig, base: str = "base"
) -> Outcome:
    """The keeper, with one replica whose loads take `load_s` each, one change at a time."""
    names = sorted({name for _, name in sequence})
    catalogue = [AdapterConfig(name=name, path=f"/{name}", base=base) for name in names]
    return _World(AdapterKeeper(config, catalogue), slots, load_s, base).run(sequence)


class _World:
    def __init__(self, keeper: AdapterKeeper, slots: int, load_s: float, base: str) -> None:
        self._keeper, self._load_s = keeper, load_s
        self._held: set[str] = set()
        self._waiting: dict[str, list[float]] = {}
        self._done: list[tuple[float, int, AdapterChange]] = []
        self._loads = self._swaps = self._changes = 0
        self._waited_s: list[float] = []
        keeper.replica_up("one", (base,), (), slots, 0.0)

    def run(self, sequence: Sequence[Use]) -> Outcome:
        hits, look_s = 0, 0.0
        for now_s, name in sequence:
            while min(look_s, self._due_s()) < now_s:
                at_s = min(look_s, self._due_s())
                self._look(at_s, {})
                look_s = at_s + (_HURRY_S if self._waiting else _LOOK_S)
            if name in self._held:
                hits += 1
            else:
                self._waiting.setdefault(name, []).append(now_s)
            self._look(now_s, {name: 1})
            look_s = now_s + (_HURRY_S if self._waiting else _LOOK_S)
        return Outcome(len(sequence), hits, self._loads, self._swaps, tuple(self._waited_s))

    def _due_s(self) -> float:
        return self._done[0][0] if self._done else math.inf

    def _look(self, now_s: float, used: dict[str, int]) -> None:
        while self._done and self._done[0][0] <= now_s:
            done_s, _, change = heapq.heappop(self._done)
            self._loads += len(change.load)
            self._swaps += len(change.unload)
            self._held |= set(change.load)
            self._keeper.changed(change, {}, self._load_s, done_s)
            for name in change.load:
                self._waited_s += [done_s - at_s for at_s in self._waiting.pop(name, ())]
        waiting = {name: len(times) for name, times in self._waiting.items()}
        self._keeper.demand(used, waiting, now_s)
        for change in self._keeper.decide(now_s):
            self._changes += 1
            self._held -= set(change.unload)
            done_s = now_s + self._load_s * len(change.load)
            heapq.heappush(self._done, (done_s, self._changes, change))
