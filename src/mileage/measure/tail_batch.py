"""Batch: what else ran on a target at a moment, its usual pace, and when prompts were computed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from statistics import median
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from mileage.measure.quantiles import quantile
from mileage.measure.tail_flight import Flight

__all__ = ["Batch", "Prefill"]

LIKE_MIN = 5
"""So many prompts of a like size tell how long one takes; fewer do not."""
_FLOOR_Q = 0.1
"""What the fastest tenth of like prompts took had next to no wait in it."""
_PACE_SAMPLES = 20_000
_STALL_SAMPLES = 50
_STALL_Q = 0.9
_UNKNOWN_SIZE = -1
T = TypeVar("T")


class Prefill(msgspec.Struct, frozen=True, gc=False):
    """When one prompt was computed, as far as that can be told from outside. Nanoseconds."""

    start_ns: int
    end_ns: int
    index: int
    prompt_tokens: int | None
    stall_ns: int
    """How long it can have kept other streams waiting at the most."""


class Batch:
    """All that one target did, from the calls that were sent to it.

    An engine does not tell when it begins with a prompt. A prompt that has `LIKE_MIN` others of a
    like size (the same power of two of tokens that were not cached) is taken to have been computed
    during the last part of its wait, as long as the fastest tenth of those waited in all. One that
    has fewer is taken to have been computed since the last prompt before it had its first token,
    and at least for as long as is proportional to what smaller ones take.

    A prompt explains no longer stall of others than nine of ten prompts of its size cause: in an
    engine that computes short prompts beside its tokens, they cause none. One that has fewer than
    `LIKE_MIN` like it may explain all the time that it took.
    """

    def __init__(self, flights: Sequence[Flight]) -> None:
        """`flights` are the target's, in any order."""
        streams = [flight for flight in flights if _computed(flight)]
        self._floors = _floors(streams)
        self.pace_ns = _pace_ns(streams)
        """The median gap between two moments at which tokens came; None without any gap."""
        self._by_first = _Spans(
            [(f.first_ns, f.end_ns, f) for f in streams if f.end_ns > f.first_ns]
        )
        self._waits = _Spans([(f.dispatched_ns, f.relayed_ns, f) for f in streams])
        prefills = self._with_stalls([self._prefill(flight) for flight in streams], streams)
        self._starts = {p.index: p.start_ns for p in prefills}
        self._prefills = _Spans([(p.start_ns, p.end_ns, p) for p in prefills])

    def prefill_start_ns(self, flight: Flight) -> int:
        """When the engine began with the prompt of one of the flights."""
        return self._starts[flight.record.index]

    def prefills(self, start_ns: int, end_ns: int, *, other_than: int) -> list[Prefill]:
        """Prompts of other calls that were computed in a time, as they began."""
        found = self._prefills.overlapping(start_ns, end_ns)
        return [prefill for prefill in found if prefill.index != other_than]

    def running(self, at_ns: int) -> int:
        """Streams between their first and last token."""
        return len(self._by_first.overlapping(at_ns, at_ns + 1))

    def all_late(self, start_ns: int, end_ns: int, *, other_than: int) -> bool:
        """Whether there were other streams all the time, and none of them had a token in it."""
        others = [
            flight
            for flight in self._by_first.overlapping(start_ns, end_ns)
            if flight.record.index != other_than
            and flight.first_ns <= start_ns
            and flight.end_ns >= end_ns
        ]
        return bool(others) and not any(_has_token(f, start_ns, end_ns) for f in others)

    def _prefill(self, flight: Flight) -> Prefill:
        low, high = flight.dispatched_ns, flight.relayed_ns
        floor_ns, sure = self._floor_ns(flight.fresh_tokens)
        start = high if floor_ns is None else max(low, high - floor_ns)
        if not sure:
            start = min(start, self._last_ahead_ns(flight))
        record = flight.record
        tokens = record.prompt_tokens
        return Prefill(
            max(low, start),
            high,
            record.index,
            record.planned_prompt_tokens if tokens is None else tokens,
            high - max(low, start),
        )

    def _with_stalls(self, prefills: list[Prefill], streams: Sequence[Flight]) -> list[Prefill]:
        """The prefills with what those of their size do to other streams."""
        pace = self.pace_ns
        sizes: dict[int, list[Prefill]] = {}
        for prefill, flight in zip(prefills, streams, strict=True):
            sizes.setdefault(_size(flight.fresh_tokens), []).append(prefill)
        found = {}
        for like in sizes.values():
            most = None
            if len(like) >= LIKE_MIN and pace is not None:
                sample = like[:: max(1, len(like) // _STALL_SAMPLES)]
                stalls = [s for p in sample if (s := self._stall_ns(p, pace)) is not None]
                most = quantile(stalls, _STALL_Q)
            for prefill in like:
                own = prefill.end_ns - prefill.start_ns
                found[prefill.index] = own if most is None else min(own, round(most))
        return [replace(p, stall_ns=found[p.index]) for p in prefills]

    def _stall_ns(self, prefill: Prefill, pace: int) -> int | None:
        """By how much the gap of another stream around its end was too long; None without one."""
        for flight in self._by_first.overlapping(prefill.end_ns - 1, prefill.end_ns):
            if flight.record.index == prefill.index:
                continue
            at = bisect_left(flight.tokens_ns, prefill.end_ns)
            if 0 < at < len(flight.tokens_ns):
                return max(0, flight.tokens_ns[at] - flight.tokens_ns[at - 1] - pace)
        return None

    def _last_ahead_ns(self, flight: Flight) -> int:
        """When the last prompt that was dispatched earlier had its first token."""
        low, high = flight.dispatched_ns, flight.relayed_ns
        return max(
            (
                other.relayed_ns
                for other in self._waits.overlapping(low, high)
                if other.dispatched_ns < low and low < other.relayed_ns < high
            ),
            default=low,
        )

    def _floor_ns(self, tokens: int | None) -> tuple[int | None, bool]:
        """The least time for so many tokens, and whether there were enough like them."""
        size = _size(tokens)
        if size in self._floors:
            return self._floors[size], True
        smaller = [known for known in self._floors if _UNKNOWN_SIZE < known < size]
        if not smaller or tokens is None:
            return None, False
        nearest = max(smaller)
        return round(self._floors[nearest] * max(1.0, tokens / 2**nearest)), False


class _Spans(Generic[T]):
    """Things with a start and an end; finds those that overlap a time."""

    def __init__(self, spans: Sequence[tuple[int, int, T]]) -> None:
        ordered = sorted(spans, key=itemgetter(0))
        self._ends = [end for _, end, _ in ordered]
        self._starts = [start for start, _, _ in ordered]
        self._things = [thing for _, _, thing in ordered]
        self._latest = list(accumulate(self._ends, max))

    def overlapping(self, start_ns: int, end_ns: int) -> list[T]:
        """Those that have a part inside, in the order of their starts."""
        high = bisect_left(self._starts, end_ns)
        low = bisect_right(self._latest, start_ns, hi=high)  # all before have ended by then
        return [self._things[i] for i in range(low, high) if self._ends[i] > start_ns]


def _computed(flight: Flight) -> bool:
    """Whether its prompt was computed, and it is seen when: also where its answer had no token."""
    record = flight.record
    return len(flight.tokens_ns) > 0 or (record.stream and record.outcome == "ok")


def _has_token(flight: Flight, start_ns: int, end_ns: int) -> bool:
    at = bisect_right(flight.tokens_ns, start_ns)
    return at < len(flight.tokens_ns) and flight.tokens_ns[at] < end_ns


def _size(tokens: int | None) -> int:
    """Sizes with the same number are within a factor of two."""
    return _UNKNOWN_SIZE if tokens is None else tokens.bit_length()


def _floors(streams: Sequence[Flight]) -> dict[int, int]:
    waits: dict[int, list[int]] = {}
    for flight in streams:
        wait_ns = flight.relayed_ns - flight.dispatched_ns
        waits.setdefault(_size(flight.fresh_tokens), []).append(wait_ns)
    floors = {}
    for size, known in waits.items():
        floor = quantile(known, _FLOOR_Q)
        if len(known) >= LIKE_MIN and floor is not None:
            floors[size] = round(floor)
    return floors


def _pace_ns(streams: Sequence[Flight]) -> int | None:
    """The median gap, over some `_PACE_SAMPLES` of them from all parts of the run."""
    total = sum(len(flight.tokens_ns) for flight in streams)
    step = max(1, total // _PACE_SAMPLES)
    gaps = [
        after - before
        for flight in streams[::step]
        for before, after in pairwise(flight.tokens_ns)
        if after > before
    ]
    return round(median(gaps)) if gaps else None
