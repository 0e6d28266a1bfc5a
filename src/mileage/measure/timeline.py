"""Latency figures of one request: TTFT, TPOT and E2E of its timeline; the clock of its tokens."""

from __future__ import annotations

import math
from array import array
from operator import sub
from typing import NamedTuple

from mileage.core.timeline import RequestTimeline
from mileage.measure.quantiles import quantile_of_runs, rank

__all__ = [
    "RUNS_MAX",
    "TokenClock",
    "TokenSummary",
    "e2e_s",
    "output_tokens",
    "output_tokens_per_s",
    "tokens_per_event",
    "tpot_s",
    "ttft_s",
]

RUNS_MAX = 4096
"""Points in time that a TokenClock keeps; 12 bytes each."""
_BUCKETS_PER_OCTAVE = 32
_GAP_MIN_S = 1e-9


def output_tokens(timeline: RequestTimeline) -> int | None:
    """Tokens generated: the engine's own count, else the token events counted, else None."""
    if timeline.output_tokens is not None:
        return timeline.output_tokens
    return timeline.output_tokens_counted


def ttft_s(timeline: RequestTimeline) -> float | None:
    """Seconds from arrival to the first token.

    None without a stream: the first byte of such an answer is sent after its last token, and says
    nothing about the first.
    """
    return timeline.first_token_s if timeline.stream else None


def tpot_s(timeline: RequestTimeline) -> float | None:
    """Mean seconds per output token after the first: (last - first) / (n - 1).

    None below two tokens, without a stream, and where n is unknown.
    """
    first, last, count = timeline.first_token_s, timeline.last_token_s, output_tokens(timeline)
    if not timeline.stream or first is None or last is None or count is None or count < 2:
        return None
    return (last - first) / (count - 1)


def e2e_s(timeline: RequestTimeline) -> float | None:
    """Seconds from arrival to the last token, of a request that ended well; else None.

    Without a stream the end of the answer stands for its last token.
    """
    if timeline.outcome != "ok":
        return None
    if timeline.stream:
        return timeline.last_token_s
    return timeline.finished_s


def output_tokens_per_s(timeline: RequestTimeline) -> float | None:
    """Output tokens per second of the request's whole stay (n / E2E); None where either is."""
    count, duration_s = output_tokens(timeline), e2e_s(timeline)
    if count is None or not duration_s:
        return None
    return count / duration_s


def tokens_per_event(timeline: RequestTimeline) -> float | None:
    """Tokens that one event of the stream carried on average, to be told beside any ITL.

    None unless the engine counted its tokens and the stream had events.
    """
    if timeline.output_tokens is None or not timeline.output_tokens_counted:
        return None
    return timeline.output_tokens / timeline.output_tokens_counted


class TokenSummary(NamedTuple):
    """A stream in six figures. The gaps are None below two events."""

    first_s: float | None
    last_s: float | None
    events: int
    itl_mean_s: float | None
    itl_p99_s: float | None
    itl_max_s: float | None


class TokenClock:
    """Records when the token events of one stream came, in bounded memory.

    Events that came together (in one chunk) share a point in time and have gaps of 0 between
    them. The first `runs_max` points are kept as they are. Past them only figures go on: events,
    first, last, mean and maximum stay exact, and gaps are counted in buckets 2.2 % wide, so a
    p99 that falls among those is off by at most 1.1 %.
    """

    __slots__ = (
        "_counts",
        "_events_past",
        "_gap_max_s",
        "_gaps_past",
        "_last_s",
        "_room",
        "_times",
    )

    def __init__(self, runs_max: int = RUNS_MAX) -> None:
        if runs_max < 1:
            raise ValueError(f"runs_max must be at least 1, got {runs_max!r}")
        self._times = array("d")
        self._counts = array("I")
        self._room = runs_max
        self._last_s = -math.inf
        self._events_past = 0
        self._gap_max_s = 0.0
        self._gaps_past: dict[int, int] | None = None

    def add(self, now_s: float, events: int = 1) -> None:
        """Count `events` (1 or more) token events at `now_s`.

        A time that is not after the one before counts as the same moment.
        """
        if now_s > self._last_s:
            if self._room:
                self._room -= 1
                self._last_s = now_s
                self._times.append(now_s)
                self._counts.append(events)
            else:
                self._add_past(now_s, events)
        elif self._gaps_past is None:
            self._counts[-1] += events
        else:
            self._events_past += events

    def _add_past(self, now_s: float, events: int) -> None:
        """Count a point past the bound: its gap goes to a bucket."""
        gaps = self._gaps_past
        if gaps is None:
            gaps = self._gaps_past = {}
        gap_s = now_s - self._last_s
        self._last_s = now_s
        self._events_past += events
        self._gap_max_s = max(self._gap_max_s, gap_s)
        bucket = math.floor(math.log2(max(gap_s, _GAP_MIN_S)) * _BUCKETS_PER_OCTAVE)
        gaps[bucket] = gaps.get(bucket, 0) + 1

    def summary(self) -> TokenSummary:
        """The figures so far; the p99 by the definition of `mileage.measure.quantiles`."""
        times = self._times
        events = sum(self._counts) + self._events_past
        if not events:
            return TokenSummary(None, None, 0, None, None, None)
        first_s, last_s = times[0], self._last_s
        if events == 1:
            return TokenSummary(first_s, last_s, 1, None, None, None)
        mean_s = (last_s - first_s) / (events - 1)
        if last_s == first_s:
            return TokenSummary(first_s, last_s, events, 0.0, 0.0, 0.0)
        gaps = list(map(sub, times[1:], times))
        max_s = max(max(gaps, default=0.0), self._gap_max_s)
        p99_s = self._p99_s(gaps, events - 1, max_s)
        return TokenSummary(first_s, last_s, events, mean_s, p99_s, max_s)

    def _p99_s(self, gaps: list[float], count: int, max_s: float) -> float:
        """The p99 of `count` gaps: `gaps` between points kept, zeros within points, buckets."""
        if self._gaps_past is None:
            # Zeros are the smallest: the rank counts from the top, and only real gaps are sorted.
            from_top = count - rank(0.99, count)
            if from_top == 0:
                return max_s
            if from_top >= len(gaps):
                return 0.0
            gaps.sort()
            return gaps[-1 - from_top]
        runs = [(gap, 1) for gap in gaps]
        for bucket, times in self._gaps_past.items():
            runs.append((min(max_s, 2.0 ** ((bucket + 0.5) / _BUCKETS_PER_OCTAVE)), times))
        runs.append((0.0, count - sum(times for _, times in runs)))
        value = quantile_of_runs(runs, 0.99)
        assert value is not None
        return value

    def token_times(self, origin_s: float) -> tuple[int, ...]:
        """The points kept, flat: microseconds after `origin_s`, events then, and so on.

        A point before `origin_s` counts as 0.
        """
        flat = [0] * (2 * len(self._times))
        flat[::2] = [
            int((time_s - origin_s) * 1e6 + 0.5) if time_s > origin_s else 0
            for time_s in self._times
        ]
        flat[1::2] = self._counts
        return tuple(flat)
