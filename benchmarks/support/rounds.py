"""Rounds: one measured stretch of load on one stack, with the use of both cores beside it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.closed_loop import run_closed_loop
from benchmarks.support.judges import (
    ExactBody,
    Judge,
    SameText,
    StampedEvents,
    streamed_text,
    whole_text,
)
from benchmarks.support.open_loop import run_open_loop
from benchmarks.support.payloads import (
    CHAT_MODEL,
    STREAM_MODEL,
    Events,
    chat_answer,
    chat_request,
    http_request,
)
from benchmarks.support.probe import Probe
from benchmarks.support.stacks import Stack
from benchmarks.support.statistics import quantile
from benchmarks.support.watch import LOAD_CORE, CoreUse, Watch
from benchmarks.support.wrk import run_wrk

__all__ = [
    "CONNECTIONS",
    "EVENTS",
    "LatencyRound",
    "PacedRound",
    "Round",
    "latency_round",
    "paced_round",
    "stream_round",
    "whole_round",
]

CONNECTIONS = 32
EVENTS = 128
PACED_STREAMS = 200
PACED_INTERVAL_MS = 20


@dataclass(frozen=True, slots=True)
class Round:
    """One round of whole answers or of streams; `sent` counts what must be in the ledger.

    `cut_off`: requests that may have been in flight when the generator stopped.
    """

    per_s: float
    completed: int
    cut_off: int
    errors: int
    first_error: str | None
    p50_ms: float | None
    p99_ms: float | None
    use: CoreUse

    @property
    def cpu_us(self) -> float:
        """CPU microseconds of the stack per request."""
        return self.use.cpu_s / max(1, self.completed) * 1e6

    @property
    def generator_limited(self) -> bool:
        """Upstream and load filled their core while the stack's core was not full."""
        use = self.use
        load_ratio = use.load_core_ratio - use.load_foreign_ratio
        return load_ratio > 0.9 and use.stack_ratio + use.foreign_ratio < 0.9


@dataclass(frozen=True, slots=True)
class LatencyRound:
    """One round at a constant rate; times from the SCHEDULED start of each request.

    `lag_*`: how late the client itself was, part of the latency; shows a disturbed machine.
    """

    sent: int
    errors: int
    first_error: str | None
    p50_ms: float | None
    p99_ms: float | None
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    use: CoreUse


@dataclass(frozen=True, slots=True)
class PacedRound:
    """One round of paced streams; `p50_ms` and `p99_ms`: from an event's write to its read."""

    sent: int
    events: int
    events_per_s: float
    errors: int
    first_error: str | None
    p50_ms: float | None
    p99_ms: float | None
    use: CoreUse

    @property
    def cpu_us(self) -> float:
        """CPU microseconds of the stack per event."""
        return self.use.cpu_s / max(1, self.events) * 1e6


def whole_round(stack: Stack, duration_s: float, directory: Path) -> Round:
    """wrk posts for whole answers; a probe beside it checks answers byte by byte."""
    body = chat_request(CHAT_MODEL)
    expected = chat_answer()
    judge = SameText(expected, whole_text) if stack.reencodes else ExactBody(expected)
    probe = Probe(stack.chat_port, http_request(body, key=stack.key, close=True), judge)
    watch = Watch(stack)
    result = run_wrk(
        f"http://127.0.0.1:{stack.chat_port}/v1/chat/completions",
        body,
        key=stack.key,
        connections=CONNECTIONS,
        duration_s=duration_s,
        core=LOAD_CORE,
        directory=directory,
        meanwhile=probe,
    )
    use = watch.read()
    errors, first_error = result.errors + probe.errors, probe.first_error
    mean_bytes = result.bytes / max(1, result.completed)
    if result.errors:
        first_error = first_error or result.failure or f"wrk counted {result.errors} errors"
    elif result.completed and not len(expected) * 0.9 < mean_bytes < len(expected) + 4096:
        errors, first_error = errors + 1, f"answers of {mean_bytes:.0f} bytes on average"
    return Round(
        per_s=result.requests_per_s,
        completed=result.completed + probe.sent,
        cut_off=CONNECTIONS,
        errors=errors,
        first_error=first_error,
        p50_ms=result.p50_us / 1e3,
        p99_ms=result.p99_us / 1e3,
        use=use,
    )


def stream_round(stack: Stack, duration_s: float, expected: Events) -> Round:
    """Our own client streams as fast as it can and compares every body with `expected`."""

    def judge() -> Judge:
        if stack.reencodes:
            return SameText(expected.body, streamed_text)
        return ExactBody(expected.body)

    request = http_request(chat_request(STREAM_MODEL, stream=True), key=stack.key)
    watch = Watch(stack)
    result = run_closed_loop(
        stack.stream_port,
        request,
        judge,
        connections=CONNECTIONS,
        window_s=duration_s,
        drain_s=30.0,
    )
    use = watch.read()
    return Round(
        per_s=result.answers_per_s,
        completed=result.completed,
        cut_off=0,
        errors=result.errors,
        first_error=result.first_error,
        p50_ms=_milliseconds(result.latencies_s, 0.5),
        p99_ms=_milliseconds(result.latencies_s, 0.99),
        use=use,
    )


def latency_round(stack: Stack, duration_s: float, rate_per_s: float) -> LatencyRound:
    """Requests for whole answers at a constant rate, timed from their scheduled start."""
    body, expected = chat_request(CHAT_MODEL), chat_answer()
    watch = Watch(stack)
    result = run_open_loop(
        stack.chat_port,
        http_request(body, key=stack.key),
        ExactBody(expected),
        rate_per_s=rate_per_s,
        duration_s=duration_s,
        connections=CONNECTIONS,
    )
    return LatencyRound(
        sent=result.sent,
        errors=result.errors,
        first_error=result.first_error,
        p50_ms=_milliseconds(result.latencies_s, 0.5),
        p99_ms=_milliseconds(result.latencies_s, 0.99),
        lag_p50_ms=_milliseconds(result.lags_s, 0.5),
        lag_p99_ms=_milliseconds(result.lags_s, 0.99),
        use=watch.read(),
    )


def paced_round(stack: Stack, duration_s: float) -> PacedRound:
    """Streams whose events come one by one, each in a packet of its own, as engines send them."""
    delays_s: list[float] = []

    def judge() -> Judge:
        return StampedEvents(
            EVENTS, lambda _number, delay_ns, _now: delays_s.append(delay_ns / 1e9)
        )

    orders = f"events={EVENTS} interval_ms={PACED_INTERVAL_MS}"
    body = chat_request(STREAM_MODEL, stream=True, user=orders)
    watch = Watch(stack)
    start_s = time.monotonic()
    result = run_closed_loop(
        stack.stream_port,
        http_request(body, key=stack.key),
        judge,
        connections=PACED_STREAMS,
        window_s=duration_s,
        ramp_s=min(1.0, duration_s / 2),
    )
    wall_s = time.monotonic() - start_s
    use = watch.read()
    delays_s.sort()
    return PacedRound(
        sent=result.sent,
        events=len(delays_s),
        events_per_s=len(delays_s) / wall_s,
        errors=result.errors,
        first_error=result.first_error,
        p50_ms=_milliseconds(delays_s, 0.5),
        p99_ms=_milliseconds(delays_s, 0.99),
        use=use,
    )


def _milliseconds(ordered_s: Sequence[float], q: float) -> float | None:
    return quantile(ordered_s, q) * 1e3 if ordered_s else None
