"""What a run of the gateway benchmark measured, and the figures made of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import median
from typing import TypeVar

from benchmarks.support.competitors import ROUTER_DEFAULT_POLICY
from benchmarks.support.machine import describe
from benchmarks.support.mileage import LedgerTotals
from benchmarks.support.output import Output
from benchmarks.support.payloads import ANSWER_TOKENS
from benchmarks.support.rounds import EVENTS, LatencyRound, PacedRound, Round
from benchmarks.support.stacks import Stack
from benchmarks.support.statistics import spread
from benchmarks.support.verdict import Bar
from benchmarks.support.watch import disturbances

__all__ = ["BARS", "Runs", "figures"]

BARS = (
    Bar("requests_per_s", 10_000),
    Bar("ratio_vllm_router", 3),
    Bar("stream_ratio_vllm_router", 2),
    Bar("added_p50_ms", 0.3, at_least=False),
    Bar("added_p99_ms", 2, at_least=False),
)

AnyRound = Round | LatencyRound | PacedRound
RoundT = TypeVar("RoundT", Round, LatencyRound, PacedRound)


class Runs:
    """The rounds by stack name, and what must be true of the run as a whole."""

    def __init__(self) -> None:
        self.whole: dict[str, list[Round]] = defaultdict(list)
        self.streams: dict[str, list[Round]] = defaultdict(list)
        self.latency: dict[str, list[LatencyRound]] = defaultdict(list)
        self.paced: dict[str, list[PacedRound]] = defaultdict(list)
        self.versions: dict[str, str] = {}
        self.policies: dict[str, float] = {}
        self.best_policy = ""
        self.failures: list[str] = []
        self.competitor_errors: list[str] = []
        self.sent = self.streamed = self.cut_off = 0
        self.ledger: LedgerTotals | None = None
        self.counted = 0

    @property
    def router(self) -> str:
        """Name of vllm-router with its best policy."""
        return f"vllm-router {self.best_policy}"

    def note_stacks(self, best_policy: str, *stacks: Stack) -> None:
        """Remember what takes part."""
        self.best_policy = best_policy
        self.versions = {stack.name.split()[0]: stack.version for stack in stacks}

    def add_whole(self, stack: Stack, measured: Round, *, counted: bool) -> None:
        """A round of whole answers; a warm-up is not counted, its requests and errors are."""
        self._note(stack, measured)
        if stack.name == "mileage":
            self.sent += measured.completed
            self.cut_off += measured.cut_off
        if counted:
            self.whole[stack.name].append(measured)

    def add_streams(self, stack: Stack, measured: Round, *, counted: bool) -> None:
        """A round of streams."""
        self._note(stack, measured)
        if stack.name == "mileage":
            self.sent += measured.completed
            self.streamed += measured.completed
        if counted:
            self.streams[stack.name].append(measured)

    def add_latency(self, stack: Stack, measured: LatencyRound, *, counted: bool) -> None:
        """A round at a constant rate."""
        self._note(stack, measured)
        if stack.name == "mileage":
            self.sent += measured.sent
        if counted:
            self.latency[stack.name].append(measured)

    def add_paced(self, stack: Stack, measured: PacedRound) -> None:
        """A round of paced streams."""
        self._note(stack, measured)
        self.paced[stack.name].append(measured)

    def _note(self, stack: Stack, measured: AnyRound) -> None:
        if measured.errors:
            text = f"{stack.name}: {measured.errors} errors, the first: {measured.first_error}"
            mine = stack.name == "mileage"
            (self.failures if mine else self.competitor_errors).append(text)

    def note_ledger(self, totals: LedgerTotals, counted: int) -> None:
        """Check the ledger and the metrics against what was sent."""
        self.ledger, self.counted = totals, counted
        if not self.sent <= totals.total <= self.sent + self.cut_off:
            self.failures.append(
                f"the ledger has {totals.total} rows for {self.sent} requests "
                f"(and up to {self.cut_off} cut off)"
            )
        if counted != totals.total:
            self.failures.append(f"metrics count {counted} requests, the ledger {totals.total}")
        tokens = (self.sent - self.streamed) * ANSWER_TOKENS + self.streamed * (EVENTS - 1)
        if totals.output_tokens < tokens:
            self.failures.append(f"{totals.output_tokens} output tokens metered, {tokens} served")

    def invalid(self) -> list[str]:
        """Why the run says nothing, if so."""
        reasons = list(self.competitor_errors)
        for what, rounds in (("whole answers", self.whole), ("streams", self.streams)):
            for name, measured in rounds.items():
                if name != "direct" and sum(r.generator_limited for r in measured) * 2 > len(
                    measured
                ):
                    reasons.append(f"{what}: generator and upstream are the limit, not {name}")
            ours, direct = rounds.get("mileage"), rounds.get("direct")
            if ours and direct and _median(direct, _per_s) < 1.5 * _median(ours, _per_s):
                reasons.append(f"{what}: the upstream alone is not 1.5x as fast as the gateway")
        return reasons

    def doubts(self) -> list[str]:
        """What disturbed the run."""
        rounds: list[AnyRound] = [
            *(r for rs in self.whole.values() for r in rs),
            *(r for rs in self.streams.values() for r in rs),
            *(r for rs in self.latency.values() for r in rs),
        ]
        return disturbances(measured.use for measured in rounds)

    def show(self, output: Output) -> None:
        """Tables for people."""
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
            ("Whole answers, 32 connections", self.whole),
            (f"Streams of {EVENTS} events, 32 connections", self.streams),
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
                for name, measured in self.latency.items()
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
                for name, measured in self.paced.items()
            ],
        )


def figures(runs: Runs) -> dict[str, object]:
    """The JSON object: figures that bars are about first, then what they are made of."""
    router, default = runs.router, f"vllm-router {ROUTER_DEFAULT_POLICY}"
    whole, streams = runs.whole, runs.streams
    return {
        "ratio_vllm_router": _ratio(whole, router),
        "ratio_litellm": _ratio(whole, "litellm"),
        "stream_ratio_vllm_router": _ratio(streams, router),
        "requests_per_s": round(_median(whole["mileage"], _per_s), 1),
        "added_p50_ms": _added(runs.latency, "mileage", lambda r: r.p50_ms),
        "added_p99_ms": _added(runs.latency, "mileage", lambda r: r.p99_ms),
        "ratio_vllm_router_default_policy": _ratio(whole, default),
        "cpu_ratio_vllm_router": _cpu_ratio(whole, router),
        "stream_ratio_litellm": _ratio(streams, "litellm"),
        "stream_cpu_ratio_vllm_router": _cpu_ratio(streams, router),
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
        "vllm_router_policy": runs.best_policy,
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
