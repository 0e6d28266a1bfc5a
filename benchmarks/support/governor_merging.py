"""Merging: identical streams that share a generation, and embeddings that share a call."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.support.calls import Call, text_of_words
from benchmarks.support.governed import GovernedStack
from benchmarks.support.governor_part import Part, Surroundings
from benchmarks.support.load_client import run_schedule
from benchmarks.support.payloads import http_request
from benchmarks.support.step_answers import CHAT_MODEL, EMBEDDING_MODEL
from benchmarks.support.step_upstream import StepUpstream, late_steps
from benchmarks.support.verdict import Bar
from benchmarks.support.watch import LOAD_CORE

__all__ = ["measure_merging", "span_s"]

STREAMS = 50
STREAM_TOKENS = 40
TEXTS, TEXTS_EMBEDDED = 1000, 200
"""On the step engine, and on the embedded one, which computes them."""
ROUNDS = 3
MERGED: Mapping[str, Any] = {}
SEPARATE: Mapping[str, Any] = {"enabled": False, "batch_enabled": False}


def measure_merging(around: Surroundings) -> Part:
    """Streams and embeddings on the step engine, embeddings on the embedded engine."""
    part = Part()
    with StepUpstream(around.new_directory("merging"), core=LOAD_CORE) as engine:
        _streams(around, engine, part)
        found = {
            name: _embeddings(around, engine, name, merging, part)
            for name, merging in (("merged", MERGED), ("separate", SEPARATE))
        }
    calls, seconds = ([found[n][i] for n in ("merged", "separate")] for i in (0, 1))
    part.figures |= {
        "embedding_upstream_calls": calls[0],
        "embedding_upstream_calls_separate": calls[1],
        "embedding_seconds": round(seconds[0], 4),
        "embedding_seconds_separate": round(seconds[1], 4),
        "embedding_calls_ratio": round(calls[1] / max(1, calls[0]), 2),
        "embedding_speedup": round(seconds[1] / seconds[0], 2),
    }
    _embedded(around, part)
    part.bars = (
        Bar("merged_streams_generations", 2, at_least=False),
        Bar("embedding_calls_ratio", 5),
        Bar("embedding_speedup", 2),
    )
    return part


def span_s(calls: Sequence[Call]) -> float:
    """From the first request to the end of the last answer."""
    ends = [call.end_s for call in calls if call.end_s is not None]
    return max(ends) - min(call.due_s for call in calls)


def _streams(around: Surroundings, engine: StepUpstream, part: Part) -> None:
    """Identical streams: half at once, half while the answer is on its way."""
    body = {
        "model": CHAT_MODEL,
        "messages": [{"role": "user", "content": "What is a GPU? Answer in one sentence."}],
        "max_tokens": STREAM_TOKENS,
        "temperature": 0,
        "stream": True,
    }
    request = http_request(json.dumps(body).encode())
    half = STREAMS // 2
    times = [0.0] * half + [0.01 + 0.02 * n for n in range(STREAMS - half)]
    calls = [Call(at_s, request, 0, STREAM_TOKENS) for at_s in times]
    with around.gateway(
        around.new_directory("streams"),
        sections=_sections(MERGED),
        engine_url=engine.url,
        engine_slots=engine.slots,
    ) as stack:
        before = engine.stats()
        run_schedule(stack.chat_port, calls, drain_s=20.0)
        after = engine.stats()
    for call in calls:
        if not call.whole or call.status != 200 or call.events != STREAM_TOKENS:
            part.failures.append(
                f"a merged stream has {call.events} tokens, status {call.status}: {call.error}"
            )
            break
    generations = after["finished"] - before["finished"] + after["aborted"] - before["aborted"]
    part.figures["merged_streams"] = STREAMS
    part.figures["merged_streams_generations"] = generations
    around.output.say(f"merging: {STREAMS} identical streams, {generations} generation(s)")


def _embeddings(
    around: Surroundings,
    engine: StepUpstream,
    name: str,
    merging: Mapping[str, Any],
    part: Part,
) -> tuple[int, float]:
    """Calls upstream and seconds of a burst of single texts; of several the fastest."""
    with around.gateway(
        around.new_directory(f"embeddings-{name}"),
        sections=_sections(merging),
        engine_url=engine.url,
        engine_slots=engine.slots,
    ) as stack:
        best: tuple[int, float] | None = None
        for number in range(1 if around.quick else ROUNDS):
            engine.reset_lags()
            before = engine.stats()["embedding_calls"]
            calls = _burst(stack, EMBEDDING_MODEL, TEXTS, seed=number)
            count = engine.stats()["embedding_calls"] - before
            _check(calls, f"embeddings {name}", part)
            if best is None or span_s(calls) < best[1]:
                best = count, span_s(calls)
    late = late_steps(engine.stats()["lags"])
    if late is not None:
        part.doubts.append(f"embeddings {name}: {late}")
    assert best is not None
    around.output.say(f"merging: {TEXTS} embeddings {name}: {best[0]} calls, {best[1]:.2f} s")
    return best


def _embedded(around: Surroundings, part: Part) -> None:
    """The same on the embedded engine, which computes: beside the bar, not held to it."""
    texts = 40 if around.quick else TEXTS_EMBEDDED
    seconds = {}
    for name, merging in (("merged", MERGED), ("separate", SEPARATE)):
        sections = {**_sections(merging), "embedded": {"threads": 1, "weights": "q4_0"}}
        with around.gateway(
            around.new_directory(f"embedded-{name}"), sections=sections, engine_core=LOAD_CORE
        ) as stack:
            calls = _burst(stack, "smollm2", texts, seed=7)
        _check(calls, f"embedded engine, {name}", part)
        seconds[name] = span_s(calls)
        around.output.say(f"merging: embedded engine, {texts} {name}: {seconds[name]:.2f} s")
    part.figures |= {
        "embedded_embedding_texts": texts,
        "embedded_embedding_seconds": round(seconds["merged"], 3),
        "embedded_embedding_seconds_separate": round(seconds["separate"], 3),
        "embedded_embedding_speedup": round(seconds["separate"] / seconds["merged"], 2),
    }


def _burst(stack: GovernedStack, model: str, texts: int, *, seed: int) -> list[Call]:
    rng = random.Random(seed)
    calls = []
    for _ in range(texts):
        body = {"model": model, "input": text_of_words(rng, 8)}
        request = http_request(json.dumps(body).encode(), path="/v1/embeddings")
        calls.append(Call(0.0, request, 8, 0))
    run_schedule(stack.chat_port, calls, drain_s=120.0)
    return calls


def _check(calls: Sequence[Call], name: str, part: Part) -> None:
    bad = [call for call in calls if not call.whole or call.status != 200]
    if bad:
        call = bad[0]
        part.failures.append(f"{name}: {len(bad)} failed: {call.status}: {call.error}")


def _sections(merging: Mapping[str, Any]) -> dict[str, Any]:
    return {"merging": dict(merging)} if merging else {}
