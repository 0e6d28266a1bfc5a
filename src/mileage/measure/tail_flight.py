"""Flight: one call's moments as whole nanoseconds in order, so that parts of it add up exactly."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import msgspec

from mileage.core.timeline import RequestTimeline
from mileage.measure.call_record import CallRecord

__all__ = ["Flight", "flights", "to_ns"]


class Flight(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call that was sent. Nanoseconds since the run began; no moment is before those above it.

    A moment that was not seen is that of the one before, so that its part has no length. With a
    gateway's record `arrived_ns` and `dispatched_ns` are the gateway's, `relayed_ns` is when it had
    the first token; without one they are `sent_ns`, `sent_ns` and `first_ns`.
    """

    record: CallRecord
    scheduled_ns: int
    taken_ns: int
    connected_ns: int
    sent_ns: int
    arrived_ns: int
    dispatched_ns: int
    relayed_ns: int
    first_ns: int
    """First token; of an answer that is no stream, its end."""
    end_ns: int
    """Last token; of an answer that is no stream, its end."""
    tokens_ns: array[int]
    """Moments of token events; empty for an answer that is no stream."""
    joined: bool = False

    @property
    def fresh_tokens(self) -> int | None:
        """Prompt tokens that had to be computed, as far as it is known."""
        record = self.record
        prompt = record.prompt_tokens
        if prompt is None:
            prompt = record.planned_prompt_tokens
        return None if prompt is None else max(0, prompt - (record.cached_tokens or 0))


def to_ns(seconds: float) -> int:
    """Whole nanoseconds."""
    return round(seconds * 1e9)


def flights(
    records: Sequence[CallRecord], timelines: Mapping[str, RequestTimeline]
) -> list[Flight]:
    """The calls that were sent and had an answer, in the order of `records`.

    `timelines` are a gateway's records by the request id that its answer carried. Its clock needs
    not be the generator's: the least of (its arrival - our sending) over all is taken to be the
    clocks' difference and the fastest way there together.
    """
    found: list[tuple[CallRecord, RequestTimeline | None]] = []
    offset_ns: int | None = None
    for record in records:
        if record.sent_s is None or _end_s(record) is None:
            continue
        timeline = timelines.get(record.request_id) if record.request_id else None
        if timeline is not None:
            ahead_ns = timeline.arrived_at_utc_ns - to_ns(record.sent_s)
            offset_ns = ahead_ns if offset_ns is None else min(offset_ns, ahead_ns)
        found.append((record, timeline))
    return [_flight(record, timeline, offset_ns or 0) for record, timeline in found]


def _end_s(record: CallRecord) -> float | None:
    """E2E ends at the last token; without a stream at the answer's end."""
    if record.stream and record.token_times_s:
        return record.token_times_s[-1]
    return record.ended_s


def _flight(record: CallRecord, timeline: RequestTimeline | None, offset_ns: int) -> Flight:
    end_s = _end_s(record)
    assert end_s is not None
    streamed = record.stream and len(record.token_times_s) > 0
    scheduled = to_ns(record.scheduled_s)
    end = max(scheduled, to_ns(end_s))
    tokens = _ordered(record.token_times_s, scheduled, end) if streamed else array("q")
    first = tokens[0] if streamed else end
    taken = _between(scheduled, record.taken_s, first)
    connected = _between(taken, record.connected_s, first)
    sent = _between(connected, record.sent_s, first)
    arrived, dispatched, relayed = sent, sent, first
    if timeline is not None:
        stay_ns = to_ns(_gateway_stay_s(timeline, streamed))
        arrived = min(max(sent, timeline.arrived_at_utc_ns - offset_ns), max(sent, first - stay_ns))
        relayed = min(first, arrived + stay_ns)
        dispatched = min(relayed, arrived + to_ns(timeline.dispatched_s or 0.0))
    return Flight(
        record=record,
        scheduled_ns=scheduled,
        taken_ns=taken,
        connected_ns=connected,
        sent_ns=sent,
        arrived_ns=arrived,
        dispatched_ns=dispatched,
        relayed_ns=relayed,
        first_ns=first,
        end_ns=end,
        tokens_ns=tokens,
        joined=timeline is not None,
    )


def _gateway_stay_s(timeline: RequestTimeline, streamed: bool) -> float:
    """How long the gateway had the request before its first token, or before its answer's end."""
    stay_s = timeline.first_token_s if streamed else timeline.finished_s
    return max(0.0, stay_s or 0.0)


def _between(low_ns: int, at_s: float | None, high_ns: int) -> int:
    return low_ns if at_s is None else min(max(low_ns, to_ns(at_s)), high_ns)


def _ordered(times_s: Sequence[float], low_ns: int, high_ns: int) -> array[int]:
    found = array("q")
    at = low_ns
    for time_s in times_s:
        at = min(max(at, to_ns(time_s)), high_ns)
        found.append(at)
    return found
