"""Traffic of the attribution's benchmark: four tenants of different shapes on one engine."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from random import Random

from mileage.workload.trace_request import TraceRequest

__all__ = ["TENANTS", "traffic"]

BLOCK_TOKENS = 64
_STEM_BLOCKS = 40
_STEMS = 8
_BURST_EVERY_S = 45.0
_BURST_S = 5.0


def traffic(
    scale: float, duration_s: float, seed: int, tenants: Iterable[str] | None = None
) -> list[TraceRequest]:
    """Requests of `duration_s`, `scale` times the basic rates.

    Each tenant has random numbers of its own: its requests are the same whoever else is there.
    """
    chosen = TENANTS if tenants is None else [name for name in TENANTS if name in set(tenants)]
    streams = [TENANTS[name](name, scale, duration_s, Random(f"{seed} {name}")) for name in chosen]
    return list(heapq.merge(*streams, key=lambda request: request.arrived_s))


def _poisson(rate_rps: float, duration_s: float, random: Random) -> Iterator[float]:
    now_s = random.expovariate(rate_rps)
    while now_s < duration_s:
        yield now_s
        now_s += random.expovariate(rate_rps)


def _tokens(random: Random, median: float, sigma: float, least: int, most: int) -> int:
    return max(least, min(most, round(random.lognormvariate(math.log(median), sigma))))


def _long_prompts(
    name: str, scale: float, duration_s: float, random: Random
) -> Iterator[TraceRequest]:
    """Documents with a short answer."""
    for arrived_s in _poisson(0.15 * scale, duration_s, random):
        prompt = _tokens(random, 4000, 0.5, 500, 10000)
        output = _tokens(random, 60, 0.6, 5, 300)
        yield TraceRequest(
            arrived_s=arrived_s, prompt_tokens=prompt, output_tokens=output, tenant=name
        )


def _long_answers(
    name: str, scale: float, duration_s: float, random: Random
) -> Iterator[TraceRequest]:
    """Short questions with answers that reason."""
    for arrived_s in _poisson(0.07 * scale, duration_s, random):
        prompt = _tokens(random, 150, 0.7, 20, 1500)
        output = _tokens(random, 700, 0.6, 50, 3000)
        yield TraceRequest(
            arrived_s=arrived_s, prompt_tokens=prompt, output_tokens=output, tenant=name
        )


def _cache_friendly(
    name: str, scale: float, duration_s: float, random: Random
) -> Iterator[TraceRequest]:
    """One of a few long system prompts, and a question of its own."""
    weights = [1.0 / (rank + 1) for rank in range(_STEMS)]
    for number, arrived_s in enumerate(_poisson(0.2 * scale, duration_s, random)):
        stem = random.choices(range(_STEMS), weights)[0]
        prompt = _STEM_BLOCKS * BLOCK_TOKENS + _tokens(random, 200, 0.8, 10, 2000)
        shared = [stem * _STEM_BLOCKS + block for block in range(_STEM_BLOCKS)]
        blocks = -(-prompt // BLOCK_TOKENS)
        own = [(number + 1) * 10_000 + block for block in range(_STEM_BLOCKS, blocks)]
        yield TraceRequest(
            arrived_s=arrived_s,
            prompt_tokens=prompt,
            output_tokens=_tokens(random, 120, 0.6, 10, 600),
            tenant=name,
            prefix_blocks=(*shared, *own),
            block_tokens=BLOCK_TOKENS,
        )


def _bursty(name: str, scale: float, duration_s: float, random: Random) -> Iterator[TraceRequest]:
    """Nothing for most of a minute, then many at once."""
    moments: list[float] = []
    for begun_s in _poisson(1.0 / _BURST_EVERY_S, duration_s - _BURST_S, random):
        count = max(1, round(random.uniform(0.5, 1.5) * 0.3 * scale * _BURST_EVERY_S))
        moments += [begun_s + random.uniform(0.0, _BURST_S) for _ in range(count)]
    for arrived_s in sorted(moments):
        yield TraceRequest(
            arrived_s=arrived_s,
            prompt_tokens=_tokens(random, 600, 0.7, 30, 4000),
            output_tokens=_tokens(random, 160, 0.6, 10, 800),
            tenant=name,
        )


TENANTS: dict[str, Callable[[str, float, float, Random], Iterator[TraceRequest]]] = {
    "long-prompts": _long_prompts,
    "long-answers": _long_answers,
    "cache-friendly": _cache_friendly,
    "bursty": _bursty,
}
