"""Latencies of the requests of a run, as arrays: one entry a request, NaN where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mileage.core.slo import Slo
from mileage.measure.call_record import CallRecord
from mileage.measure.quantiles import rank

__all__ = ["Bools", "Counts", "Floats", "Gaps", "RecordLatency", "gaps_of", "good", "latencies"]

Bools = NDArray[np.bool_]
Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


class RecordLatency(NamedTuple):
    """Columns over the requests given, all of shape (n,), in their order. Seconds; NaN is missing.

    `first_s`, `last_s` and `events` are of every stream, however it ended; the latencies are of
    requests that ended well.
    """

    ok: Bools
    scheduled_s: Floats
    ended_s: Floats
    first_s: Floats
    """The first token event; NaN without a stream."""
    last_s: Floats
    events: Counts
    """Token events."""
    output_tokens: Floats
    """The engine's own count, else the token events of a stream; NaN where neither is."""
    ttft_s: Floats
    """First token - scheduled start. Streams only."""
    tpot_s: Floats
    """(last - first) / (output tokens - 1). Streams of two tokens or more."""
    e2e_s: Floats
    """Last token (without a stream: end of the answer) - scheduled start."""


class Gaps(NamedTuple):
    """Inter-token latencies of streams: each gap above 0, and how many gaps were 0.

    Token events that came together have gaps of 0 between them.
    """

    gaps_s: Floats
    """All gaps above 0 of all requests, one request after the other; shape (m,)."""
    zeros: int
    """Gaps of 0 beside them."""
    request_p99_s: Floats
    """The p99 of each request's own gaps, in the order of the requests; NaN below two events."""


def latencies(records: Sequence[CallRecord]) -> RecordLatency:
    """The columns of `records`."""
    n = len(records)
    nan = float("nan")
    scheduled_s = np.fromiter((r.scheduled_s for r in records), np.float64, n)
    ended_s = np.fromiter((nan if r.ended_s is None else r.ended_s for r in records), np.float64, n)
    ok = np.fromiter((r.outcome == "ok" for r in records), np.bool_, n)
    stream = np.fromiter((r.stream for r in records), np.bool_, n)
    seen = [r.token_times_s if r.stream else () for r in records]
    first_s = np.fromiter((times[0] if times else nan for times in seen), np.float64, n)
    last_s = np.fromiter((times[-1] if times else nan for times in seen), np.float64, n)
    events = np.fromiter((sum(r.token_events) if r.stream else 0 for r in records), np.int64, n)
    tokens = np.fromiter((_output_tokens(r) for r in records), np.float64, n)
    many = ok & stream & (tokens >= 2.0)
    spans_s = np.where(many, last_s - first_s, nan)
    finished_s = np.where(stream, last_s, ended_s)
    return RecordLatency(
        ok=ok,
        scheduled_s=scheduled_s,
        ended_s=ended_s,
        first_s=first_s,
        last_s=last_s,
        events=events,
        output_tokens=tokens,
        ttft_s=np.where(ok, first_s - scheduled_s, nan),
        tpot_s=spans_s / np.where(many, tokens - 1.0, 1.0),
        e2e_s=np.where(ok, finished_s - scheduled_s, nan),
    )


def _output_tokens(record: CallRecord) -> float:
    if record.output_tokens is not None:
        return float(record.output_tokens)
    if record.stream and record.token_events:
        return float(sum(record.token_events))
    return float("nan")


def gaps_of(records: Sequence[CallRecord]) -> Gaps:
    """The gaps between token events of `records`; those without a stream have none.

    Linear in the number of token times.
    """
    n = len(records)
    points = np.fromiter((len(r.token_times_s) if r.stream else 0 for r in records), np.int64, n)
    events = np.fromiter((sum(r.token_events) if r.stream else 0 for r in records), np.int64, n)
    seen = [np.frombuffer(r.token_times_s) for r in records if r.stream and r.token_times_s]
    p99_s = np.full(n, np.nan)
    if not seen:
        return Gaps(np.empty(0), 0, p99_s)
    owner = np.repeat(np.arange(n), points)
    gaps_s = np.diff(np.concatenate(seen))[owner[1:] == owner[:-1]]
    ends = np.cumsum(np.maximum(points - 1, 0)).tolist()
    for index in np.flatnonzero(events >= 2).tolist():
        # Zeros are the smallest: the rank counts down from the largest gap.
        count, own = int(events[index]) - 1, int(points[index]) - 1
        down = count - rank(0.99, count)
        if down >= own:
            p99_s[index] = 0.0
            continue
        gaps = gaps_s[ends[index] - own : ends[index]]
        p99_s[index] = gaps.max() if down == 0 else np.partition(gaps, own - 1 - down)[-1 - down]
    zeros = int(np.maximum(events - 1, 0).sum()) - len(gaps_s)
    return Gaps(gaps_s, zeros, p99_s)


def good(records: Sequence[CallRecord], slo: Slo) -> Bools:
    """Which requests met all their targets; shape (n,).

    Only a stream can: of another answer nobody sees when its tokens came. One that failed or was
    cancelled has not; one with a single token event has no gap, and so has met a target on gaps.
    `slo.ttft_unloaded_ratio` needs a model of the engine and is not looked at.
    """
    columns = latencies(records)
    met: Bools = columns.ok & ~np.isnan(columns.first_s)
    if slo.ttft_s is not None:
        met &= columns.ttft_s <= slo.ttft_s
    if slo.itl_s is not None:
        met &= ~(gaps_of(records).request_p99_s > slo.itl_s)
    return met
