"""What the load generator itself can do: whole answers, a schedule, and many paced streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, repeat

import msgspec
import numpy as np
import uvloop

from benchmarks.support.payloads import CHAT_MODEL, chat_request
from benchmarks.support.timed_upstream import ServerTruth, TimedUpstream
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.run import LoadRun, run_load
from mileage.loadgen.run_options import Ramp, RunOptions
from mileage.loadgen.target import Target
from mileage.measure.call_record import CallRecord

__all__ = ["LoadFigures", "StreamFigures", "closed_load", "open_load", "stream_load"]


class LoadFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One run of requests; rates per second, in the measured window."""

    requests_per_s: float
    cpu_us_per_request: float
    cpu_ratio: float
    lag_p99_s: float
    failures: str | None


class StreamFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One run of paced streams."""

    streams: int
    events_per_s: float
    server_events_per_s: float
    """Those that the server wrote in the window."""
    delay_p50_s: float
    delay_p99_s: float
    """From the server's write of an event to the client's time for it."""
    delay_max_s: float
    loop_lag_p99_s: float
    cpu_ratio: float
    failures: str | None


def closed_load(
    server: TimedUpstream, *, connections: int, duration_s: float, tokens: int | None = None
) -> LoadFigures:
    """As many requests as it can; `tokens`: streams of so many events, else whole answers."""
    options = RunOptions(
        mode="closed", concurrency=connections, warmup_s=1.0, duration_s=duration_s
    )
    return _load_figures(_run(server, _calls(tokens), options), duration_s)


def open_load(server: TimedUpstream, *, rate: float, duration_s: float) -> LoadFigures:
    """Whole answers on a schedule."""
    options = RunOptions(warmup_s=1.0, duration_s=duration_s)
    return _load_figures(_run(server, _calls(None, rate), options), duration_s)


def stream_load(
    server: TimedUpstream, *, streams: int, tokens: int, duration_s: float
) -> StreamFigures:
    """So many streams at once, each followed by another, with every event timed twice."""
    ramp = Ramp(start=0, end=streams, over_s=4.0)
    options = RunOptions(mode="closed", ramp=ramp, warmup_s=6.0, duration_s=duration_s)
    server.truth()  # of earlier runs
    run = _run(server, _calls(tokens), options)
    written_s, seen_s, missing = _times(run.records, server.truth(), run.zero_monotonic_s)
    inside = (written_s >= run.start_s) & (written_s < run.end_s)
    delays_s = np.sort((seen_s - written_s)[inside])
    use = run.generator
    failures = _failures(run)
    if missing:
        failures = f"{missing} events were written and not seen"
    return StreamFigures(
        streams=streams,
        events_per_s=float(np.sum((seen_s >= run.start_s) & (seen_s < run.end_s))) / duration_s,
        server_events_per_s=len(delays_s) / duration_s,
        delay_p50_s=float(delays_s[len(delays_s) // 2]),
        delay_p99_s=float(delays_s[int(len(delays_s) * 0.99)]),
        delay_max_s=float(delays_s[-1]),
        loop_lag_p99_s=use.loop_lag_p99_s or 0.0,
        cpu_ratio=use.cpu_ratio or 0.0,
        failures=failures,
    )


def _times(
    records: list[CallRecord], truth: ServerTruth, zero_s: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """When each event was written and seen, on the run's clock; and how many were never seen."""
    written: list[float] = []
    seen: list[float] = []
    missing = 0
    for record in records:
        known = truth.requests.get(record.request_id or "")
        if known is None:
            continue
        times = chain.from_iterable(
            map(repeat, record.token_times_s, record.token_events)  # one for each event
        )
        own = list(times)
        missing += abs(len(known.written_s) - len(own))
        count = min(len(known.written_s), len(own))
        written += known.written_s[:count]
        seen += own[:count]
    return np.asarray(written) - zero_s, np.asarray(seen), missing


def _calls(tokens: int | None, rate: float | None = None) -> Iterator[PlannedCall]:
    body = chat_request(CHAT_MODEL, stream=tokens is not None)
    if tokens is not None:
        body = body.replace(b'"max_tokens":256', b'"max_tokens":%d' % tokens)
    index = 0
    while True:
        yield PlannedCall(
            index=index,
            scheduled_s=index / rate if rate else 0.0,
            path=b"/v1/chat/completions",
            body=body,
            stream=tokens is not None,
            model=CHAT_MODEL,
        )
        index += 1


def _run(server: TimedUpstream, calls: Iterator[PlannedCall], options: RunOptions) -> LoadRun:
    return uvloop.run(run_load(calls, [Target(url=server.url)], options))


def _load_figures(run: LoadRun, duration_s: float) -> LoadFigures:
    done = sum(
        r.outcome == "ok" and r.ended_s is not None and run.start_s <= r.ended_s < run.end_s
        for r in run.records
    )
    cpu_ratio = run.generator.cpu_ratio or 0.0
    lag_s = run.generator.loop_lag_p99_s or 0.0
    return LoadFigures(
        requests_per_s=done / duration_s,
        cpu_us_per_request=cpu_ratio * duration_s / max(1, done) * 1e6,
        cpu_ratio=cpu_ratio,
        lag_p99_s=max(lag_s, run.generator.lag_p99_s or 0.0),
        failures=_failures(run),
    )


def _failures(run: LoadRun) -> str | None:
    bad = [record for record in run.records if record.outcome != "ok"]
    if not bad:
        return None
    outcomes = dict(Counter(record.outcome for record in bad))
    return f"{outcomes} of {len(run.records)} calls, the first: {bad[0].error}"
