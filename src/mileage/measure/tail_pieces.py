"""Pieces: one call's latency cut into plain stages, each moment in exactly one."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from mileage.measure.tail_batch import Batch
from mileage.measure.tail_flight import Flight
from mileage.measure.tail_report import Latency
from mileage.measure.tail_stage import Role, Stage

__all__ = ["Piece", "merged", "pieces"]

_LATE_RATIO = 2.0
_LATE_NS = 5_000_000
"""A gap is a stall where it is over twice the target's usual one, and by 5 ms."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """A part of one call. Nanoseconds since the run began."""

    start_ns: int
    end_ns: int
    stage: Stage
    event_ns: int
    """When what was waited for was seen: at the end of this piece, or of one that follows."""
    role: Role | None = None
    """The process whose cause it is; None in a plain stage."""
    asked_ns: int | None = None
    """When the request was sent, where it is not known when a gateway before the engine had it."""


def pieces(flight: Flight, batch: Batch, latency: Latency) -> list[Piece]:
    """The call's pieces in order of time, none of them empty.

    Each begins where the one before ended; the first begins when the call was scheduled, and the
    last ends with its latency: at the last token, or at the first for `ttft`.
    """
    found: list[Piece] = []
    first = flight.first_ns
    _add(found, flight.scheduled_ns, flight.taken_ns, "schedule")
    _add(found, flight.taken_ns, flight.connected_ns, "connect")
    _add(found, flight.connected_ns, flight.sent_ns, "send")
    _add(found, flight.sent_ns, flight.arrived_ns, "transit")
    _add(found, flight.arrived_ns, flight.dispatched_ns, "gateway_queue")
    asked = None if flight.joined else flight.sent_ns
    if not flight.tokens_ns:
        _add(found, flight.dispatched_ns, flight.relayed_ns, "answer", asked_ns=asked)
        _add(found, flight.relayed_ns, first, "transit")
        return found
    begun = batch.prefill_start_ns(flight)
    relayed = flight.relayed_ns
    _add(found, flight.dispatched_ns, begun, "upstream_wait", event_ns=relayed, asked_ns=asked)
    _add(found, begun, relayed, "prefill", asked_ns=asked)
    _add(found, relayed, first, "transit")
    if latency == "e2e":
        for before, after in pairwise(flight.tokens_ns):
            _add_gap(found, before, after, flight.record.index, batch)
    return found


def merged(found: list[Piece]) -> list[Piece]:
    """The same with neighbours of one stage put together."""
    result: list[Piece] = []
    for piece in found:
        last = result[-1] if result else None
        if last is not None and (last.stage, last.role) == (piece.stage, piece.role):
            result[-1] = Piece(last.start_ns, piece.end_ns, last.stage, piece.event_ns, last.role)
        else:
            result.append(piece)
    return result


def _add(
    found: list[Piece],
    start_ns: int,
    end_ns: int,
    stage: Stage,
    *,
    event_ns: int | None = None,
    asked_ns: int | None = None,
) -> None:
    if end_ns > start_ns:
        event = end_ns if event_ns is None else event_ns
        found.append(Piece(start_ns, end_ns, stage, event, asked_ns=asked_ns))


def _add_gap(found: list[Piece], before: int, after: int, index: int, batch: Batch) -> None:
    """A gap between tokens: the usual one at its end, and before it what it was late."""
    pace = batch.pace_ns
    if pace is None or after - before <= max(_LATE_RATIO * pace, pace + _LATE_NS):
        _add(found, before, after, "decode")
        return
    late_until = after - pace
    at = before
    unexplained: Stage = "stall"
    if batch.all_late(before + pace // 2, late_until, other_than=index):
        unexplained = "stall_engine"
    for prefill in batch.prefills(before, late_until, other_than=index):
        start = max(at, prefill.start_ns)
        end = min(late_until, prefill.end_ns, start + prefill.stall_ns)
        if end > start:
            _add(found, at, start, unexplained, event_ns=after)
            _add(found, start, end, "stall_prefill", event_ns=after)
            at = end
    _add(found, at, late_until, unexplained, event_ns=after)
    _add(found, late_until, after, "decode")
