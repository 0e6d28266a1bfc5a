"""The figures of the gateway benchmark: tables for people, the JSON object, the bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import TypeVar

from benchmarks.support.competitors import ROUTER_DEFAULT_POLICY
from benchmarks.support.gateway_runs import Runs
from benchmarks.support.machine import describe
from benchmarks.support.output import Output
from benchmarks.support.rounds import EVENTS, LatencyRound, PacedRound, Round
from benchmarks.support.statistics import spread
from benchmarks.support.verdict import Bar

__all__ = ["BARS", "figures", "show"]

BARS = (
    Bar("requests_per_s", 10_000),
    Bar("ratio_vllm_router", 3, comparative=True),
    Bar("stream_ratio_vllm_router", 2, comparative=True),
    Bar("added_p50_ms", 0.3, at_least=False),
    Bar("added_p99_ms", 2, at_least=False),
)

RoundT = TypeVar("RoundT", Round, LatencyRound, PacedRound)


def show(runs: Runs, output: Output) -> None:
    """Print tables for people."""
    columns = (
        "stack",
        "median/s",
        "min",
        "max",
        "CPU us",
        "p50 ms",
        "p99 ms",
        "core",
        "errors",
    )
    for title, rounds in (
        ("Whole answers, 32 connections", runs.whole),
        (f"Streams of {EVENTS} events, 32 connections", runs.streams),
    ):
        rows = []
        for name, measured in rounds.items():
            per_s = spread(r.per_s for r in measured)
            rows.append(
                (
                    name,
                    *(round(per_s.median), round(per_s.low), round(per_s.high)),
                    _median(measured, _cpu_us),
                    _middle(r.p50_ms for r in measured),
                    _middle(r.p99_ms for r in measured),
                    f"{_median(measured, lambda r: r.use.stack_ratio):.0%}",
                    sum(r.errors for r in measured),
                )
            )
        output.table(title, columns, rows)
    output.table(
        "Whole answers at 1,000 requests/s, from the scheduled start",
        ("stack", "p50 ms", "p99 ms", "client late p50 ms", "p99 ms", "errors"),
        [
            (
                name,
                _middle(r.p50_ms for r in measured),
                _middle(r.p99_ms for r in measured),
                _middle(r.lag_p50_ms for r in measured),
                _middle(r.lag_p99_ms for r in measured),
                sum(r.errors for r in measured),
            )
            for name, measured in runs.latency.items()
        ],
    )
    output.table(
        "Paced streams, one event a packet",
        ("stack", "events/s", "CPU us per event", "event p50 ms", "event p99 ms", "errors"),
        [
            (
                name,
                round(_median(measured, lambda r: r.events_per_s)),
                _median(measured, _cpu_us),
                _middle(r.p50_ms for r in measured),
                _middle(r.p99_ms for r in measured),
                sum(r.errors for r in measured),
            )
            for name, measured in runs.paced.items()
        ],
    )


def figures(runs: Runs) -> dict[str, object]:
    """The JSON object: figures that bars are about first, then what they are made of."""
    router, default = runs.router, f"vllm-router {ROUTER_DEFAULT_POLICY}"
    whole, streams = runs.whole, runs.streams
    return {
        "ratio_vllm_router": _ratio(whole, default),
        "ratio_litellm": _ratio(whole, "litellm"),
        "stream_ratio_vllm_router": _ratio(streams, default),
        "requests_per_s": round(_median(whole["mileage"], _per_s), 1),
        "added_p50_ms": _added(runs.latency, "mileage", lambda r: r.p50_ms),
        "added_p99_ms": _added(runs.latency, "mileage", lambda r: r.p99_ms),
        "ratio_vllm_router_cheapest_policy": _ratio(whole, router),
        "stream_ratio_vllm_router_cheapest_policy": _ratio(streams, router),
        "cpu_ratio_vllm_router": _cpu_ratio(whole, default),
        "cpu_ratio_vllm_router_cheapest_policy": _cpu_ratio(whole, router),
        "stream_ratio_litellm": _ratio(streams, "litellm"),
        "stream_cpu_ratio_vllm_router": _cpu_ratio(streams, default),
        "stream_cpu_ratio_vllm_router_cheapest_policy": _cpu_ratio(streams, router),
        "streams_per_s": round(_median(streams["mileage"], _per_s), 1),
        "added_p50_ms_vllm_router": _added(runs.latency, router, lambda r: r.p50_ms),
        "added_p99_ms_vllm_router": _added(runs.latency, router, lambda r: r.p99_ms),
        "stream_paced_cpu_us_per_event": round(_median(runs.paced["mileage"], _cpu_us), 2),
        "stream_paced_cpu_ratio_vllm_router": _cpu_ratio(runs.paced, router),
        "stream_paced_added_p50_ms": _added(runs.paced, "mileage", lambda r: r.p50_ms),
        "stream_paced_added_p99_ms": _added(runs.paced, "mileage", lambda r: r.p99_ms),
        "stream_paced_added_p50_ms_vllm_router": _added(runs.paced, router, lambda r: r.p50_ms),
        "stream_paced_added_p99_ms_vllm_router": _added(runs.paced, router, lambda r: r.p99_ms),
        "requests": runs.sent,
        "requests_cut_off_max": runs.cut_off,
        "ledger_rows": runs.ledger.total if runs.ledger else None,
        "metrics_requests": runs.counted,
        "vllm_router_cheapest_policy": runs.best_policy,
        "vllm_router_policies_cpu_us": {k: round(v, 1) for k, v in runs.policies.items()},
        "whole": {name: _summary(rounds) for name, rounds in whole.items()},
        "streams": {name: _summary(rounds) for name, rounds in streams.items()},
        "versions": runs.versions,
        "machine": describe(),
    }


def _summary(rounds: list[Round]) -> dict[str, object]:
    return {
        "per_s": spread(r.per_s for r in rounds).rounded(1),
        "cpu_us": spread(r.cpu_us for r in rounds).rounded(1),
        "p99_ms": _middle(r.p99_ms for r in rounds),
        "core_ratio": round(_median(rounds, lambda r: r.use.stack_ratio), 3),
        "load_core_ratio": round(_median(rounds, lambda r: r.use.load_core_ratio), 3),
        "foreign_ratio_max": round(max(r.use.foreign_ratio for r in rounds), 3),
        "load_foreign_ratio_max": round(max(r.use.load_foreign_ratio for r in rounds), 3),
        "errors": sum(r.errors for r in rounds),
    }


def _ratio(rounds: dict[str, list[Round]], other: str) -> float | None:
    """How many times as many requests per second as the other, by medians."""
    theirs = _median(rounds[other], _per_s)
    return round(_median(rounds["mileage"], _per_s) / theirs, 3) if theirs else None


def _cpu_ratio(
    rounds: dict[str, list[Round]] | dict[str, list[PacedRound]], other: str
) -> float | None:
    """The other's CPU time per request (or event) over ours: above 1 we are cheaper."""
    ours = median(r.cpu_us for r in rounds["mileage"])
    return round(median(r.cpu_us for r in rounds[other]) / ours, 3) if ours else None


def _added(
    rounds: dict[str, list[RoundT]], name: str, read: Callable[[RoundT], float | None]
) -> float | None:
    """Difference to direct of the same round; the median over the rounds, in milliseconds."""
    pairs = [(read(a), read(b)) for a, b in zip(rounds[name], rounds["direct"], strict=True)]
    added = [a - b for a, b in pairs if a is not None and b is not None]
    return round(median(added), 4) if added else None


def _per_s(measured: Round) -> float:
    return measured.per_s


def _cpu_us(measured: Round | PacedRound) -> float:
    return measured.cpu_us


def _median(rounds: list[RoundT], read: Callable[[RoundT], float]) -> float:
    return median(read(measured) for measured in rounds)


def _middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(median(known), 3) if known else None
