"""RunFigures: what a run of a load generator showed, in figures over its measured window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from mileage.core.slo import Slo
from mileage.measure.call_record import CallRecord
from mileage.measure.record_latency import (
    Bools,
    Floats,
    Gaps,
    RecordLatency,
    gaps_of,
    good,
    latencies,
)
from mileage.measure.spread import Spread, spread, spread_of_runs

__all__ = ["CENSORED", "RunFigures", "run_figures"]

CENSORED = frozenset({"broken", "connect", "cut", "timeout", "unsent"})
"""Failures that hide a latency: the request was waited for, and would have taken longer still."""


class RunFigures(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Figures of one run, or of a group of its requests; None is what was not seen.

    Counts and latencies are of the requests SCHEDULED in the window, also of those that ended
    after it: to leave those out would hide the slowest. Rates are of what came INSIDE the window,
    also of requests scheduled before it, and what comes while the run drains is left out: else a
    server that falls behind would be credited with what it delivered late.
    """

    requests: int
    """Scheduled in the window: those that ended well, failed or were cancelled."""
    requests_ok: int
    requests_failed: dict[str, int]
    """By class of failure (`CallOutcome`); a class without any is left out."""
    requests_cancelled: int
    """The generator left on purpose; neither well nor failed."""
    window_s: float
    ttft_s: Spread
    """Scheduled start to first token; streams that ended well, as are all latencies below."""
    itl_s: Spread
    """All gaps between token events, of all requests together."""
    itl_request_p99_s: Spread
    """The p99 of each request's own gaps."""
    tpot_s: Spread
    e2e_s: Spread
    """Scheduled start to last token, or to the end of an answer without a stream."""
    ttft_at_least_s: Spread
    """As `ttft_s`, with each stream whose first token was not waited for, or never came, at the
    time for which it was waited: a lower bound of what all of them would have had. Failures that
    were answered (rejected, client_error, server_error, malformed) have no place in it."""
    e2e_at_least_s: Spread
    """As `e2e_s`, in the same way."""
    latency_censored_ratio: float | None
    """Share of the requests that were not cancelled whose latency is known only to be longer than
    they were waited for (`CENSORED`). Above 1 % a p99 of those that ended well is too low."""
    requests_per_s: float
    """Answers that ended well, inside the window, per second."""
    goodput_rps: float | None
    """Those of them that met all their targets. None without a target, and without a stream."""
    slo_attainment_ratio: float | None
    """Share of the streams scheduled in the window, not cancelled, that met all their targets."""
    output_tokens_per_s: float | None
    """Tokens that came inside the window, per second, of all requests however they ended: a
    stream's token events, each with the request's own mean of tokens per event."""
    prompt_tokens_per_s: float | None
    """Prompt tokens whose first output token (without a stream: answer) came inside the window."""
    tokens_per_event: float | None
    """Tokens that one event of a stream carried on average, to be told beside any ITL."""
    cached_tokens_ratio: float | None
    """Prompt tokens that the engine found in its prefix cache / prompt tokens."""
    usage_reported_ratio: float | None
    """Share of the requests that ended well for which the engine told its token counts."""


def run_figures(
    records: Sequence[CallRecord], *, start_s: float, end_s: float, slo: Slo
) -> RunFigures:
    """Figures of the window from `start_s` up to, not with, `end_s`, on the run's clock.

    `records` are all of the run, those of the warm-up, too. Raises ValueError for a window that
    has no length.
    """
    if not end_s > start_s:
        raise ValueError(f"a window ends after it begins, got {start_s!r} to {end_s!r}")
    own = [r for r in records if r.phase == "measured" and start_s <= r.scheduled_s < end_s]
    columns = latencies(own)
    outcomes = Counter(r.outcome for r in own)
    failed: dict[str, int] = {
        name: n for name, n in sorted(outcomes.items()) if name not in ("ok", "cancelled")
    }
    lasting = len(own) - outcomes["cancelled"]
    censored = sum(n for name, n in failed.items() if name in CENSORED)
    gaps = gaps_of([r for r in own if r.outcome == "ok"])
    throughput = _Throughput(records, start_s, end_s, slo)
    return RunFigures(
        requests=len(own),
        requests_ok=outcomes["ok"],
        requests_failed=failed,
        requests_cancelled=outcomes["cancelled"],
        window_s=end_s - start_s,
        ttft_s=_seen(columns.ttft_s),
        itl_s=_pooled(gaps),
        itl_request_p99_s=_seen(gaps.request_p99_s),
        tpot_s=_seen(columns.tpot_s),
        e2e_s=_seen(columns.e2e_s),
        ttft_at_least_s=_ttft_at_least(own, columns),
        e2e_at_least_s=_e2e_at_least(own, columns),
        latency_censored_ratio=_per(censored, lasting),
        requests_per_s=throughput.requests_per_s(),
        goodput_rps=throughput.goodput_rps(),
        slo_attainment_ratio=_attainment(own, slo),
        output_tokens_per_s=throughput.output_tokens_per_s(),
        prompt_tokens_per_s=throughput.prompt_tokens_per_s(),
        tokens_per_event=_tokens_per_event(own),
        cached_tokens_ratio=_cached(own),
        usage_reported_ratio=_per(
            sum(r.outcome == "ok" and r.prompt_tokens is not None for r in own), outcomes["ok"]
        ),
    )


class _Throughput:
    """What came inside the window, of all requests of the run."""

    def __init__(
        self, records: Sequence[CallRecord], start_s: float, end_s: float, slo: Slo
    ) -> None:
        self._records, self._start_s, self._end_s, self._slo = records, start_s, end_s, slo
        self._columns = latencies(records)
        self._done = self._columns.ok & self._inside(self._columns.ended_s)

    def _inside(self, times_s: Floats) -> Bools:
        inside: Bools = (times_s >= self._start_s) & (times_s < self._end_s)
        return inside

    def _rate(self, total: float) -> float:
        return float(total) / (self._end_s - self._start_s)

    def requests_per_s(self) -> float:
        return self._rate(int(self._done.sum()))

    def goodput_rps(self) -> float | None:
        if not _has_target(self._slo) or not any(r.stream for r in self._records):
            return None
        return self._rate(int((self._done & good(self._records, self._slo)).sum()))

    def output_tokens_per_s(self) -> float | None:
        columns = self._columns
        known = ~np.isnan(columns.output_tokens)
        if not known.any():
            return None
        total = 0.0
        for index in np.flatnonzero(known).tolist():
            record = self._records[index]
            if not record.stream or not record.token_times_s:
                inside = self._start_s <= columns.ended_s[index] < self._end_s
                total += float(columns.output_tokens[index]) if inside else 0.0
                continue
            if columns.first_s[index] >= self._end_s or columns.last_s[index] < self._start_s:
                continue
            events = np.frombuffer(record.token_events, dtype=np.uint32)
            came = int(events[self._inside(np.frombuffer(record.token_times_s))].sum())
            total += came * columns.output_tokens[index] / max(1, int(columns.events[index]))
        return self._rate(total)

    def prompt_tokens_per_s(self) -> float | None:
        counts = [r.prompt_tokens for r in self._records]
        if all(count is None for count in counts):
            return None
        tokens = np.array([count or 0 for count in counts])
        columns = self._columns
        came = self._inside(np.where(np.isnan(columns.first_s), columns.ended_s, columns.first_s))
        return self._rate(int(tokens[came].sum()))


def _has_target(slo: Slo) -> bool:
    return slo.ttft_s is not None or slo.itl_s is not None


def _per(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _seen(values: Floats) -> Spread:
    return spread(values[~np.isnan(values)])


def _pooled(gaps: Gaps) -> Spread:
    values = np.append(gaps.gaps_s, 0.0)
    counts = np.append(np.ones(len(gaps.gaps_s), dtype=np.int64), gaps.zeros)
    return spread_of_runs(values, counts)


def _waited(records: Sequence[CallRecord], columns: RecordLatency) -> Floats:
    """How long each request was waited for, where that hides a latency; else NaN."""
    hidden = np.array([r.outcome in CENSORED or r.outcome == "cancelled" for r in records], bool)
    return np.where(hidden, np.fmax(columns.ended_s - columns.scheduled_s, 0.0), np.nan)


def _ttft_at_least(records: Sequence[CallRecord], columns: RecordLatency) -> Spread:
    stream = np.array([r.stream for r in records], bool)
    waited_s = np.where(stream, _waited(records, columns), np.nan)
    first_s = columns.first_s - columns.scheduled_s
    came = ~np.isnan(first_s) & (columns.ok | ~np.isnan(waited_s))
    return _seen(np.where(came, first_s, waited_s))


def _e2e_at_least(records: Sequence[CallRecord], columns: RecordLatency) -> Spread:
    return _seen(np.where(columns.ok, columns.e2e_s, _waited(records, columns)))


def _attainment(records: Sequence[CallRecord], slo: Slo) -> float | None:
    streams = [r for r in records if r.stream and r.outcome != "cancelled"]
    if not _has_target(slo):
        return None
    return _per(int(good(streams, slo).sum()), len(streams))


def _tokens_per_event(records: Sequence[CallRecord]) -> float | None:
    counted = [
        (r.output_tokens, sum(r.token_events))
        for r in records
        if r.stream and r.outcome == "ok" and r.output_tokens is not None and r.token_events
    ]
    return _per(sum(tokens for tokens, _ in counted), sum(events for _, events in counted))


def _cached(records: Sequence[CallRecord]) -> float | None:
    told = [r for r in records if r.prompt_tokens is not None and r.cached_tokens is not None]
    cached = sum(r.cached_tokens or 0 for r in told)
    return _per(cached, sum(r.prompt_tokens or 0 for r in told))
