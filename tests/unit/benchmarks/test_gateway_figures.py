"""Figures of the gateway benchmark: ratios, differences, and what makes a run invalid."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.support.gateway_figures import figures
from benchmarks.support.gateway_runs import Runs
from benchmarks.support.mileage import LedgerTotals
from benchmarks.support.rounds import LatencyRound, PacedRound, Round
from benchmarks.support.stacks import Stack
from benchmarks.support.watch import CoreUse

NAMES = ("direct", "mileage", "vllm-router random", "vllm-router cache_aware", "litellm")
RATES = dict(zip(NAMES, (60_000.0, 12_000.0, 4_000.0, 2_000.0, 40.0), strict=True))


def use(*, stack: float = 0.99, foreign: float = 0.0, load: float = 0.5) -> CoreUse:
    return CoreUse(
        stack_ratio=stack,
        foreign_ratio=foreign,
        load_core_ratio=load,
        load_foreign_ratio=0.0,
        stolen_ratio=0.0,
        cpu_s=stack,
    )


def whole(per_s: float, *, core: CoreUse | None = None, errors: int = 0) -> Round:
    return Round(
        per_s=per_s,
        completed=1000,
        cut_off=32,
        errors=errors,
        first_error="bad" if errors else None,
        p50_ms=1.0,
        p99_ms=2.0,
        use=core or use(),
    )


def latency(p50_ms: float, p99_ms: float) -> LatencyRound:
    return LatencyRound(
        sent=1000,
        errors=0,
        first_error=None,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        lag_p50_ms=0.1,
        lag_p99_ms=0.2,
        use=use(),
    )


def paced(cpu_s: float) -> PacedRound:
    core = replace(use(), cpu_s=cpu_s)
    return PacedRound(
        sent=10,
        events=1_000_000,
        events_per_s=10_000,
        errors=0,
        first_error=None,
        p50_ms=0.3,
        p99_ms=1.0,
        use=core,
    )


def stack(name: str) -> Stack:
    return Stack(name, "1.0", chat_port=1, stream_port=1)


@pytest.fixture
def runs() -> Runs:
    runs = Runs()
    runs.note_stacks("random", *map(stack, NAMES))
    for name in NAMES:
        runs.add_whole(stack(name), whole(RATES[name] * 100), counted=False)
        runs.add_whole(stack(name), whole(RATES[name]), counted=True)
        runs.add_streams(stack(name), whole(RATES[name] / 4), counted=True)
    for name in NAMES[:3]:
        for number, jitter in enumerate((0.0, 5.0, 0.0)):
            added = 0.0 if name == "direct" else 0.2 + number / 100
            runs.add_latency(stack(name), latency(0.1 + jitter + added, 1 + jitter), counted=True)
        runs.add_paced(stack(name), paced(cpu_s=20.0))
    return runs


def test_ratios_compare_medians_of_counted_rounds(runs: Runs) -> None:
    result = figures(runs)
    assert result["ratio_vllm_router"] == 6.0
    assert result["ratio_vllm_router_cheapest_policy"] == 3.0
    assert result["ratio_litellm"] == 300.0
    assert result["stream_ratio_vllm_router"] == 6.0
    assert result["stream_ratio_vllm_router_cheapest_policy"] == 3.0
    assert result["requests_per_s"] == 12_000


def test_added_latency_is_taken_round_by_round(runs: Runs) -> None:
    result = figures(runs)
    assert result["added_p50_ms"] == pytest.approx(0.21)
    assert result["added_p99_ms"] == pytest.approx(0.0)


def test_cost_of_an_event_is_cpu_time_over_events(runs: Runs) -> None:
    assert figures(runs)["stream_paced_cpu_us_per_event"] == 20.0
    assert figures(runs)["stream_paced_cpu_ratio_vllm_router"] == 1.0


def test_a_clean_run_is_valid_and_undoubted(runs: Runs) -> None:
    assert (runs.failures, runs.invalid(), runs.doubts()) == ([], [], [])


def test_an_error_of_ours_is_a_failure_and_one_of_another_makes_the_run_invalid() -> None:
    runs = Runs()
    runs.add_whole(stack("mileage"), whole(1, errors=1), counted=False)
    runs.add_whole(stack("litellm"), whole(1, errors=1), counted=True)
    assert len(runs.failures) == 1
    assert len(runs.invalid()) == 1


def test_a_generator_at_its_limit_makes_the_run_invalid(runs: Runs) -> None:
    limited = whole(12_000, core=use(stack=0.7, load=0.99))
    for _ in range(2):
        runs.add_whole(stack("mileage"), limited, counted=True)
    assert any("the limit" in reason for reason in runs.invalid())


def test_an_upstream_that_is_hardly_faster_makes_the_run_invalid(runs: Runs) -> None:
    for _ in range(3):
        runs.add_streams(stack("direct"), whole(4000), counted=True)
    assert any("1.5x" in reason for reason in runs.invalid())


def test_other_programs_are_a_doubt_when_they_disturb_most_rounds(runs: Runs) -> None:
    disturbed = whole(12_000, core=use(stack=0.8, foreign=0.2))
    runs.add_whole(stack("mileage"), disturbed, counted=True)
    assert runs.doubts() == []
    for _ in range(30):
        runs.add_whole(stack("mileage"), disturbed, counted=True)
    assert runs.doubts() == ["other programs took 20% of the gateway's core"]


@pytest.mark.parametrize(
    ("rows", "tokens", "counted", "failures"),
    [
        pytest.param(0, 0, 0, 0, id="a row for each request"),
        pytest.param(64, 0, 64, 0, id="those cut off have one too"),
        pytest.param(65, 0, 65, 1, id="more rows than requests"),
        pytest.param(-1, 0, -1, 1, id="a row is missing"),
        pytest.param(0, 0, -1, 1, id="the metrics disagree"),
        pytest.param(0, -1, 0, 1, id="tokens are missing"),
    ],
)
def test_ledger_is_checked(rows: int, tokens: int, counted: int, failures: int) -> None:
    runs = Runs()
    for _ in range(2):
        runs.add_whole(stack("mileage"), whole(1), counted=True)
    runs.add_streams(stack("mileage"), whole(1), counted=True)
    served = 2000 * 64 + 1000 * 127
    totals = LedgerTotals(rows={"ok": 3000 + rows}, output_tokens=served + tokens)
    runs.note_ledger(totals, 3000 + counted)
    assert len(runs.failures) == failures
