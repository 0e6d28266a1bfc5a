"""An engine with known step costs: its steps, and the records that a gateway has of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from mileage.core.timeline import RequestTimeline
from mileage.ledger.engine_step import EngineStep, StepUse

__all__ = ["NS", "START_NS", "Ask", "EngineRun", "asks", "run_engine"]

NS = 1_000_000_000
START_NS = 1_700_000_000 * NS // (3600 * NS) * 3600 * NS
BUDGET_TOKENS = 1024
FIXED_S, DECODE_S, KV_S, PREFILL_S = 0.02, 1e-4, 2e-7, 1e-4


@dataclass(slots=True)
class Ask:
    """A request to come."""

    arrived_s: float
    tenant: str
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    computed: int = 0
    times_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class EngineRun:
    """What came of it."""

    timelines: list[RequestTimeline]
    steps: list[EngineStep]
    end_s: float


def asks(seed: int, length_s: float, per_s: float = 2.0) -> list[Ask]:
    """Two tenants: long prompts with short answers, and short prompts with long ones."""
    random, at_s, found = Random(seed), 0.0, []
    while (at_s := at_s + random.expovariate(per_s)) < length_s:
        if random.random() < 0.4:
            found.append(Ask(at_s, "long", random.randint(800, 3000), random.randint(5, 40)))
        else:
            found.append(Ask(at_s, "short", random.randint(20, 200), random.randint(40, 200)))
    return found


def run_engine(coming: Sequence[Ask]) -> EngineRun:
    """First come, first served; each decode before the prompts; chunks up to a budget."""
    waiting, running, steps, now_s = list(coming), list[int](), list[EngineStep](), 0.0
    ids = {id(ask): 64 * (number + 1) for number, ask in enumerate(coming)}
    for ask in coming:
        ask.computed = ask.cached_tokens
    at = 0
    while at < len(waiting) or running:
        while at < len(waiting) and (waiting[at].arrived_s <= now_s or not running):
            now_s = max(now_s, waiting[at].arrived_s)
            running.append(at)
            at += 1
        uses, done, left = [], [], BUDGET_TOKENS
        decode = kv = prefill = 0
        for number in running:
            ask = waiting[number]
            if not ask.times_s:
                continue
            context = ask.prompt_tokens + len(ask.times_s) - 1
            uses.append(StepUse(ids[id(ask)], 0, 1, context))
            decode, kv, left = decode + 1, kv + context, left - 1
            done.append(ask)
        for number in running:
            ask = waiting[number]
            chunk = min(left, ask.prompt_tokens - ask.computed)
            if ask.times_s or chunk <= 0:
                continue
            uses.append(StepUse(ids[id(ask)], chunk, 0, ask.computed))
            ask.computed, left, prefill = ask.computed + chunk, left - chunk, prefill + chunk
            if ask.computed == ask.prompt_tokens:
                done.append(ask)
        step_s = FIXED_S + DECODE_S * decode + KV_S * kv + PREFILL_S * prefill
        begun_ns, now_s = START_NS + round(now_s * NS), now_s + step_s
        ended_ns = START_NS + round(now_s * NS)
        steps.append(EngineStep("r", begun_ns, ended_ns - begun_ns, tuple(uses)))
        for ask in done:
            ask.times_s.append(now_s)
        running = [n for n in running if len(waiting[n].times_s) < waiting[n].output_tokens]
    return EngineRun([_record(ask, ids[id(ask)]) for ask in coming], steps, now_s)


def _record(ask: Ask, identity: int) -> RequestTimeline:
    after_s = [at_s - ask.arrived_s for at_s in ask.times_s]
    gaps = [b - a for a, b in pairwise(after_s)]
    return RequestTimeline(
        id=identity,
        tenant=ask.tenant,
        model="m",
        endpoint="chat",
        stream=True,
        arrived_at_utc_ns=START_NS + round(ask.arrived_s * NS),
        outcome="ok",
        status=200,
        replica="r",
        attempts=1,
        dispatched_s=0.0,
        first_token_s=after_s[0],
        last_token_s=after_s[-1],
        finished_s=after_s[-1],
        prompt_tokens=ask.prompt_tokens,
        cached_tokens=ask.cached_tokens,
        output_tokens=ask.output_tokens,
        itl_max_s=max(gaps, default=None),
        token_times=tuple(each for s in after_s for each in (round(s * 1e6), 1)),
    )
