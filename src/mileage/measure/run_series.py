"""RunSeries: a run second by second, in columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from mileage.measure.call_record import CallRecord
from mileage.measure.quantiles import rank
from mileage.measure.record_latency import Bools, Counts, Floats, RecordLatency, latencies

__all__ = ["RunSeries", "in_flight", "run_series"]


class RunSeries(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Columns of one length: entry i is of the time from `second_s[i]` on, `step_s` long.

    The last one may reach past the end of the run. None is what nobody saw in that second.
    """

    step_s: float
    second_s: list[float]
    arrivals: list[int]
    """Requests scheduled."""
    done: list[int]
    """Answers that ended well."""
    failed: list[int]
    cancelled: list[int]
    in_flight: list[float]
    """Mean number of requests scheduled and not ended, with those that the generator was late for:
    what a queue in front of the server holds, too."""
    output_tokens: list[float]
    """Tokens that came: token events, each with its request's mean of tokens per event."""
    ttft_p50_s: list[float | None]
    """Of the requests scheduled in that second."""
    ttft_p99_s: list[float | None]
    e2e_p50_s: list[float | None]
    e2e_p99_s: list[float | None]
    itl_p50_s: list[float | None]
    """Of the gaps above 0 that ended in that second."""
    itl_p99_s: list[float | None]
    lag_max_s: list[float | None]
    """The latest that the generator took up a request scheduled in that second."""


def run_series(
    records: Sequence[CallRecord], *, start_s: float, end_s: float, step_s: float = 1.0
) -> RunSeries:
    """The columns from `start_s` to `end_s` on the run's clock, of all records of any phase.

    Raises ValueError for a time or a step that has no length.
    """
    if not (end_s > start_s and step_s > 0.0):
        raise ValueError(f"got {start_s!r} to {end_s!r} in steps of {step_s!r}")
    bins = _Bins(start_s, step_s, math.ceil(round((end_s - start_s) / step_s, 9)))
    columns = latencies(records)
    outcome = np.array([r.outcome for r in records], dtype=np.str_)
    gone = outcome == "cancelled"
    lost = ~columns.ok & ~gone
    scheduled = bins.of(columns.scheduled_s)
    ended = bins.of(columns.ended_s)
    taken = [math.nan if r.taken_s is None else r.taken_s - r.scheduled_s for r in records]
    gap_bins, gaps_s = _gaps(records, bins)
    return RunSeries(
        step_s=step_s,
        second_s=[start_s + i * step_s for i in range(bins.count)],
        arrivals=bins.counts(scheduled),
        done=bins.counts(ended[columns.ok]),
        failed=bins.counts(ended[lost]),
        cancelled=bins.counts(ended[gone]),
        in_flight=in_flight(columns.scheduled_s, columns.ended_s, start_s, step_s, bins.count),
        output_tokens=_tokens(records, columns, bins),
        ttft_p50_s=bins.quantiles(scheduled, columns.ttft_s, 0.5),
        ttft_p99_s=bins.quantiles(scheduled, columns.ttft_s, 0.99),
        e2e_p50_s=bins.quantiles(scheduled, columns.e2e_s, 0.5),
        e2e_p99_s=bins.quantiles(scheduled, columns.e2e_s, 0.99),
        itl_p50_s=bins.quantiles(gap_bins, gaps_s, 0.5),
        itl_p99_s=bins.quantiles(gap_bins, gaps_s, 0.99),
        lag_max_s=bins.quantiles(scheduled, np.array(taken, dtype=np.float64), 1.0),
    )


def in_flight(
    begun_s: Floats, ended_s: Floats, start_s: float, step_s: float, count: int
) -> list[float]:
    """Mean number of requests under way in each of `count` steps; one without an end stays.

    Exact: the time under way up to a moment t is the sum of min(t, end) - min(t, begin), and it is
    taken at each step's edges from sorted times and their running sums.
    """
    edges: Floats = start_s + step_s * np.arange(count + 1, dtype=np.float64)
    until: Floats = np.where(np.isnan(ended_s), np.inf, ended_s)
    until = np.maximum(until, begun_s)
    area = _time_past(begun_s, edges) - _time_past(until, edges)
    means: list[float] = (np.diff(area) / step_s).tolist()
    return [max(0.0, mean) for mean in means]


def _time_past(times_s: Floats, edges: Floats) -> Floats:
    """At each edge: the sum over the times before it of how long ago they were."""
    ordered = np.sort(times_s[np.isfinite(times_s)])
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    before = np.searchsorted(ordered, edges)
    past: Floats = before * edges - sums[before]
    return past


class _Bins:
    """Equal steps of time; -1 is outside of them."""

    def __init__(self, start_s: float, step_s: float, count: int) -> None:
        self._start_s, self._step_s, self.count = start_s, step_s, count

    def of(self, times_s: Floats) -> Counts:
        at = np.floor((times_s - self._start_s) / self._step_s)
        inside: Bools = (at >= 0) & (at < self.count)
        return np.where(inside, np.nan_to_num(at), -1.0).astype(np.int64)

    def counts(self, bins: Counts) -> list[int]:
        found: list[int] = np.bincount(bins[bins >= 0], minlength=self.count).tolist()
        return found

    def sums(self, bins: Counts, weights: Floats) -> list[float]:
        own = bins >= 0
        found: list[float] = np.bincount(bins[own], weights[own], self.count).tolist()
        return found

    def quantiles(self, bins: Counts, values: Floats, q: float) -> list[float | None]:
        """The nearest rank of the values of each bin that are no NaN."""
        own = (bins >= 0) & ~np.isnan(values)
        bins, values = bins[own], values[own]
        ordered = values[np.lexsort((values, bins))]
        found: list[float | None] = []
        end = 0
        for count in np.bincount(bins, minlength=self.count).tolist():
            found.append(float(ordered[end + rank(q, count) - 1]) if count else None)
            end += count
        return found


def _gaps(records: Sequence[CallRecord], bins: _Bins) -> tuple[Counts, Floats]:
    """The gaps above 0, and the bins that they ended in."""
    seen = [np.frombuffer(r.token_times_s) for r in records if r.stream and r.token_times_s]
    if not seen:
        return np.empty(0, np.int64), np.empty(0)
    owner = np.repeat(np.arange(len(seen)), [len(times) for times in seen])
    times_s = np.concatenate(seen)
    own = owner[1:] == owner[:-1]
    return bins.of(times_s[1:][own]), np.diff(times_s)[own]


def _tokens(records: Sequence[CallRecord], columns: RecordLatency, bins: _Bins) -> list[float]:
    """Tokens by the second that they came in; an answer without a stream comes at its end."""
    streams = [i for i, r in enumerate(records) if r.stream and r.token_times_s]
    each = columns.output_tokens / np.maximum(columns.events, 1)
    whole = np.ones(len(records), dtype=np.bool_)
    whole[streams] = False
    whole &= ~np.isnan(columns.output_tokens)
    totals = np.array(
        bins.sums(bins.of(columns.ended_s[whole]), columns.output_tokens[whole]), dtype=np.float64
    )
    if streams:
        times_s = np.concatenate([np.frombuffer(records[i].token_times_s) for i in streams])
        events = np.concatenate([np.array(records[i].token_events) for i in streams])
        share = np.repeat(each[streams], [len(records[i].token_times_s) for i in streams])
        totals += np.array(bins.sums(bins.of(times_s), events * share))
    found: list[float] = totals.tolist()
    return found
