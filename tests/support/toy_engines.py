"""Toy engines: deterministic queues that serve requests side by side, and routers to compare."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from mileage.control.config import ControlConfig
from mileage.control.controller import Controller
from mileage.core.actions import Dispatch
from mileage.core.events import Arrived, Finished, ReplicaUp
from mileage.core.request import Request
from mileage.policy.load import work_of
from mileage.policy.routing import RoutingConfig

__all__ = [
    "LeastOutstanding",
    "Mileage",
    "Outcome",
    "RandomChoice",
    "RoundRobin",
    "Router",
    "ToyEngine",
    "simulate",
    "uniform",
    "zipf",
]

PROMPT_TOKENS = 200
OUTPUT_TOKENS_MEAN = 150
WORK_MEAN = work_of(PROMPT_TOKENS, OUTPUT_TOKENS_MEAN)


class ToyEngine:
    """Runs up to `slots` requests at once, each at min(speed, rate / running) tokens/s of work.

    One slot is a first-come, first-served server; many are a batching engine, which slows all of
    them down equally once their number times `speed` exceeds `rate`.
    """

    def __init__(self, slots: int, speed: float, rate: float) -> None:
        self.slots, self.speed, self.rate = slots, speed, rate
        self.version = 0
        self._running: list[tuple[float, int]] = []  # (attained work at its end, request)
        self._queue: deque[tuple[int, float]] = deque()
        self._attained = 0.0
        self._at_s = 0.0

    def _each(self) -> float:
        return min(self.speed, self.rate / len(self._running))

    def _advance(self, now_s: float) -> None:
        if self._running:
            self._attained += self._each() * (now_s - self._at_s)
        self._at_s = now_s

    def add(self, now_s: float, request: int, work: float) -> bool:
        """Take a request; whether it is served at once."""
        self._advance(now_s)
        if len(self._running) < self.slots:
            heapq.heappush(self._running, (self._attained + work, request))
            return True
        self._queue.append((request, work))
        return False

    def slow_down(self, now_s: float, factor: float) -> None:
        """Be slower by `factor` from now on."""
        self._advance(now_s)
        self.speed /= factor
        self.rate /= factor

    def next_end_s(self) -> float | None:
        """When the next request is done, if nothing changes."""
        if not self._running:
            return None
        return self._at_s + max(0.0, self._running[0][0] - self._attained) / self._each()

    def end(self, now_s: float) -> tuple[int, int | None]:
        """Finish the next request; it, and the one whose service begins in its place."""
        self._advance(now_s)
        _, done = heapq.heappop(self._running)
        if not self._queue:
            return done, None
        begun, work = self._queue.popleft()
        heapq.heappush(self._running, (self._attained + work, begun))
        return done, begun


class Router(Protocol):
    """Chooses an engine for each request, and is told when it is done."""

    def choose(self, request: int, now_s: float, key: int | None) -> int: ...

    def done(self, request: int, engine: int, now_s: float, output_tokens: int) -> None: ...


class RandomChoice:
    """Any engine."""

    def __init__(self, engines: int) -> None:
        self._engines, self._random = engines, Random(7)

    def choose(self, request: int, now_s: float, key: int | None) -> int:
        return self._random.randrange(self._engines)

    def done(self, request: int, engine: int, now_s: float, output_tokens: int) -> None:
        pass


class RoundRobin(RandomChoice):
    """One after the other."""

    def choose(self, request: int, now_s: float, key: int | None) -> int:
        return request % self._engines


class LeastOutstanding(RandomChoice):
    """The engine with the fewest requests of all; equals by chance."""

    def __init__(self, engines: int) -> None:
        super().__init__(engines)
        self._outstanding = [0] * engines

    def choose(self, request: int, now_s: float, key: int | None) -> int:
        out = self._outstanding
        engine = min(range(self._engines), key=lambda e: (out[e], self._random.random()))
        out[engine] += 1
        return engine

    def done(self, request: int, engine: int, now_s: float, output_tokens: int) -> None:
        self._outstanding[engine] -= 1


class Mileage:
    """The controller, hosted as the gateway does it."""

    def __init__(self, engines: int, *, affinity: bool = True, seed: int = 7) -> None:
        self.controller = Controller(
            [str(e) for e in range(engines)],
            config=ControlConfig(routing=RoutingConfig(affinity=affinity)),
            random=Random(seed),
        )
        for engine in range(engines):
            self.controller.handle(ReplicaUp(str(engine), ("toy",)), 0.0)

    def choose(self, request: int, now_s: float, key: int | None) -> int:
        (action,) = self.controller.handle(
            Arrived(
                Request(
                    id=request,
                    tenant="acme",
                    model="toy",
                    endpoint="chat",
                    stream=True,
                    arrived_s=now_s,
                    prompt_tokens_estimate=PROMPT_TOKENS,
                    prefix_key=key,
                )
            ),
            now_s,
        )
        assert isinstance(action, Dispatch)
        return int(action.replica)

    def done(self, request: int, engine: int, now_s: float, output_tokens: int) -> None:
        self.controller.handle(Finished(request, output_tokens=output_tokens), now_s)


@dataclass
class Outcome:
    """What came of a simulation, its first fifth left out as warm-up."""

    waits_s: list[float] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    work: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    places: dict[int, Counter[int]] = field(default_factory=dict)

    @property
    def wait_mean_s(self) -> float:
        return sum(self.waits_s) / len(self.waits_s)

    @property
    def wait_p99_s(self) -> float:
        return sorted(self.waits_s)[int(0.99 * len(self.waits_s))]

    @property
    def latency_mean_s(self) -> float:
        return sum(self.latencies_s) / len(self.latencies_s)

    def share(self, engine: int, engines: int) -> float:
        """An engine's part of the work, as a multiple of an equal part."""
        return self.work[engine] * engines / sum(self.work.values())

    @property
    def together_ratio(self) -> float:
        """Requests that went to where most of their prefix went."""
        together = sum(max(places.values()) for places in self.places.values())
        return together / sum(places.total() for places in self.places.values())


def uniform(keys: int) -> Callable[[Random], int]:
    """Prefixes that are all asked for as often."""
    return lambda random: random.randrange(keys) * 0x51ED_2701_93AB


def zipf(keys: int, exponent: float = 1.1) -> Callable[[Random], int]:
    """Prefixes of which a few make up most of the requests."""
    weights: list[float] = list(itertools.accumulate(1 / (i + 1) ** exponent for i in range(keys)))
    return lambda random: random.choices(range(keys), cum_weights=weights)[0] * 0x51ED_2701_93AB


def simulate(
    router: Router,
    engines: Sequence[ToyEngine],
    load: float,
    *,
    requests: int = 6000,
    keys: Callable[[Random], int] | None = None,
    change: tuple[int, Callable[[float], None]] | None = None,
) -> Outcome:
    """Poisson arrivals at `load` (1 is the engines' whole rate), exponential output lengths.

    Every router sees the very same requests. `change`: what happens at which request.
    """
    random = Random(1)
    per_s = load * sum(engine.rate for engine in engines) / WORK_MEAN
    arrived: list[tuple[float, int, int, bool]] = []  # (time, output tokens, engine, counts)
    ends: list[tuple[float, int, int]] = []  # (time, engine, version of the engine's state)
    outcome = Outcome()

    def reschedule(place: int) -> None:
        engine = engines[place]
        engine.version += 1
        end_s = engine.next_end_s()
        if end_s is not None:
            heapq.heappush(ends, (end_s, place, engine.version))

    def begin(request: int, now_s: float) -> None:
        if arrived[request][3]:
            outcome.waits_s.append(now_s - arrived[request][0])

    def run_until(limit_s: float) -> None:
        while ends and ends[0][0] <= limit_s:
            now_s, place, version = heapq.heappop(ends)
            if version != engines[place].version:
                continue
            done, begun = engines[place].end(now_s)
            if begun is not None:
                begin(begun, now_s)
            at_s, output_tokens, _, counts = arrived[done]
            router.done(done, place, now_s, output_tokens)
            if counts:
                outcome.latencies_s.append(now_s - at_s)
            reschedule(place)

    now_s = 0.0
    for request in range(requests):
        now_s += random.expovariate(per_s)
        run_until(now_s)
        if change is not None and change[0] == request:
            change[1](now_s)
            for place in range(len(engines)):
                reschedule(place)
        output_tokens = max(1, int(random.expovariate(1 / OUTPUT_TOKENS_MEAN)))
        key = keys(random) if keys is not None else None
        place = router.choose(request, now_s, key)
        counts = request >= requests // 5
        arrived.append((now_s, output_tokens, place, counts))
        work = work_of(PROMPT_TOKENS, output_tokens)
        if counts:
            outcome.work[place] += work
            if key is not None:
                outcome.places.setdefault(key, Counter())[place] += 1
        if engines[place].add(now_s, request, work):
            begin(request, now_s)
        reschedule(place)
    run_until(float("inf"))
    return outcome
