"""The load and the figures of the benchmark of policies inside vLLM."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.support.output import Output
from benchmarks.support.vllm_engine import VllmEngine
from benchmarks.support.vllm_load import LONG, SHORT, Stretch, mixed_load
from benchmarks.vllm import ARMS, BARS, Bench, Load


def load(seed: int, words: int) -> list[Any]:
    return list(mixed_load(seed, words, 7, short_per_s=3.0, long_per_s=0.5, duration_s=60.0))


def test_arms_have_the_same_arrivals_and_lengths_in_other_words() -> None:
    one, other = load(1, 1), load(1, 2)
    shape = [(call.due_s, call.prompt_tokens, call.output_tokens, call.tag) for call in one]
    assert shape == [(c.due_s, c.prompt_tokens, c.output_tokens, c.tag) for c in other]
    assert [c.due_s for c in one] == sorted(c.due_s for c in one)
    assert all(a.request != b.request for a, b in zip(one, other, strict=True))
    assert {c.tag for c in one} == {SHORT.tag, LONG.tag}


def stretch_of(p95_s: float, tokens_per_s: float, failed: int = 0) -> Stretch:
    values: dict[str, Any] = dict.fromkeys(Stretch.__dataclass_fields__, 0.01)
    values |= {"itl_p95_s": p95_s, "tokens_per_s": tokens_per_s}
    error = "lost" if failed else None
    return Stretch(**cast(Any, values | {"failed": failed, "first_error": error}))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    engine = cast(VllmEngine, SimpleNamespace(port=0))
    found = Bench(engine, engine, Load(7, 1.0, 1.0, 10.0, 2.0), Output(quiet=True))
    found.target_s = 0.1
    return found


def test_figures_are_medians_and_ratios_of_the_same_round(bench: Bench) -> None:
    for slow in (1.0, 2.0, 4.0):
        bench.seen["plain"].append(stretch_of(0.25 * slow, 100 / slow))
        bench.seen["default"].append(stretch_of(0.25 * slow, 100 / slow))
        bench.seen["governed"].append(stretch_of(0.05 * slow, 95 / slow))
    figures = bench.figures()
    assert figures["itl_p95_ratio"] == 5.0
    assert figures["throughput_ratio"] == 0.95
    assert figures["itl_p95_default_over_target"] == 5.0
    assert figures["itl_p95_governed_over_target"] == 1.0
    assert figures["plugin_off_throughput_ratio"] == 1.0
    assert {bar.figure for bar in BARS} <= set(figures)
    assert bench.failures() == []


def test_a_request_that_failed_is_told(bench: Bench) -> None:
    for arm in ARMS:
        bench.seen[arm].append(stretch_of(0.1, 1.0, failed=int(arm == "governed")))
    assert bench.failures() == ["governed: 1 requests failed, the first: lost"]
