"""Long and short prompts on a fixed schedule, and what one stretch of them showed of an engine."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.support.calls import Call, poisson_times, text_of_words
from benchmarks.support.load_client import run_schedule
from benchmarks.support.payloads import http_request
from benchmarks.support.vllm_engine import MODEL_NAME
from mileage.measure.quantiles import quantile

__all__ = ["LONG", "SHORT", "Kind", "Stretch", "TimedCall", "alone", "mixed_load", "stretch"]

_DRAIN_S = 60.0


@dataclass(slots=True)
class TimedCall(Call):
    """A call that keeps the times of its token events."""

    times_s: list[float] = field(default_factory=list)

    def note_times(self, times_s: Sequence[float]) -> None:
        """Take them all."""
        Call.note_times(self, times_s)
        self.times_s = list(times_s)


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests of one kind: lengths in tokens, drawn evenly, ends included."""

    tag: str
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]

    def call(self, rng: random.Random, words: random.Random, token: int, due_s: float) -> TimedCall:
        """One of them; its words come from `words`. All answers are of the one `token`, which is
        text by itself: one of a random model is often half a character, and comes as no event."""
        prompt, output = rng.randint(*self.prompt_tokens), rng.randint(*self.output_tokens)
        body = {
            "model": MODEL_NAME,
            "messages": [{"role": "user", "content": text_of_words(words, prompt)}],
            "max_tokens": output,
            "stream": True,
            "ignore_eos": True,
            "allowed_token_ids": [token],
        }
        request = http_request(json.dumps(body, separators=(",", ":")).encode())
        return TimedCall(due_s, request, prompt, output, self.tag)


SHORT = Kind("short", (16, 64), (40, 80))
LONG = Kind("long", (450, 700), (16, 32))


def mixed_load(
    seed: int,
    words_seed: int,
    token: int,
    *,
    short_per_s: float,
    long_per_s: float,
    duration_s: float,
) -> list[TimedCall]:
    """Both kinds, each by chance (Poisson); arrivals and lengths are the same for the same `seed`.

    What is served twice with the same words is found in the prefix cache the second time.
    """
    calls = []
    words = random.Random(words_seed)
    for number, (kind, per_s) in enumerate(((SHORT, short_per_s), (LONG, long_per_s))):
        rng = random.Random(seed * 2 + number)
        times = poisson_times(seed * 2 + number, per_s, duration_s)
        calls += [kind.call(rng, words, token, at_s) for at_s in times]
    return sorted(calls, key=lambda call: call.due_s)


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a stretch showed, in seconds; gaps of all requests pooled, between `from_s` and the last
    arrival. `tokens_per_s`: answered in that time. `events_ratio`: events over tokens."""

    failed: int
    first_error: str | None
    late_s: float
    itl_p50_s: float
    itl_p95_s: float
    itl_p99_s: float
    ttft_short_p50_s: float
    ttft_short_p95_s: float
    ttft_long_p50_s: float
    ttft_long_p95_s: float
    tokens_per_s: float
    whole_s: float
    gaps: int
    events_ratio: float


def stretch(port: int, calls: Sequence[TimedCall], *, from_s: float, until_s: float) -> Stretch:
    """Run the schedule; what came before `from_s` is not looked at."""
    whole_s = run_schedule(port, calls, drain_s=_DRAIN_S)
    failed = [call for call in calls if not (call.whole and call.status == 200)]
    seen = [call for call in calls if call.due_s >= from_s]
    gaps = [
        after - before
        for call in calls
        for before, after in pairwise(call.times_s)
        if from_s <= after <= until_s
    ]
    tokens = sum(from_s <= at_s <= until_s for call in calls for at_s in call.times_s)

    def ttft(tag: str, q: float) -> float:
        values = [s for call in seen if call.tag == tag and (s := call.ttft_s) is not None]
        return quantile(values, q) or 0.0

    return Stretch(
        failed=len(failed),
        first_error=failed[0].error if failed else None,
        late_s=max((call.sent_s or 0.0) - call.due_s for call in calls),
        itl_p50_s=quantile(gaps, 0.5) or 0.0,
        itl_p95_s=quantile(gaps, 0.95) or 0.0,
        itl_p99_s=quantile(gaps, 0.99) or 0.0,
        ttft_short_p50_s=ttft("short", 0.5),
        ttft_short_p95_s=ttft("short", 0.95),
        ttft_long_p50_s=ttft("long", 0.5),
        ttft_long_p95_s=ttft("long", 0.95),
        tokens_per_s=tokens / (until_s - from_s),
        whole_s=whole_s,
        gaps=len(gaps),
        events_ratio=sum(c.events for c in calls) / sum(c.output_tokens for c in calls),
    )


def alone(port: int, token: int, seed: int, tries: int = 5) -> tuple[float, float]:
    """Seconds to the first token of a long prompt that is alone, and between tokens of eight short
    ones at once; medians."""
    rng = random.Random(seed)
    prefill = []
    for _ in range(tries):
        call = LONG.call(rng, rng, token, 0.0)
        run_schedule(port, [call], drain_s=_DRAIN_S)
        if call.ttft_s is not None:
            prefill.append(call.ttft_s)
    company = [SHORT.call(rng, rng, token, 0.0) for _ in range(8)]
    run_schedule(port, company, drain_s=_DRAIN_S)
    gaps = [b - a for call in company for a, b in pairwise(call.times_s)]
    return quantile(prefill, 0.5) or 0.0, quantile(gaps, 0.5) or 0.0
