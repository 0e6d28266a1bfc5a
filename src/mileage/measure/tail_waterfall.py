"""Waterfalls: one request's pieces with what else was in the batch, for people and charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mileage.measure.tail_batch import Batch
from mileage.measure.tail_flight import Flight
from mileage.measure.tail_pieces import Piece
from mileage.measure.tail_report import Neighbour, TailSlice, Waterfall
from mileage.measure.tail_stage import Stage

__all__ = ["neighbours", "waterfall"]

_SHARED: Final[frozenset[Stage]] = frozenset(
    {"upstream_wait", "prefill", "stall_prefill", "stall_engine", "stall"}
)
"""Stages that what else was in the batch may explain."""
_NEIGHBOURS_MAX = 5
_SLICES_MAX = 400


def waterfall(flight: Flight, found: Sequence[Piece], batch: Batch) -> Waterfall:
    """The request's pieces; past 400 of them the rest are told by stage, in one slice each."""
    record = flight.record
    slices = [_slice(piece, flight, batch) for piece in found[:_SLICES_MAX]]
    slices += _rest(found[_SLICES_MAX:], flight)
    prompt = record.prompt_tokens
    return Waterfall(
        index=record.index,
        scheduled_s=record.scheduled_s,
        latency_s=(found[-1].end_ns - found[0].start_ns) / 1e9 if found else 0.0,
        prompt_tokens=record.planned_prompt_tokens if prompt is None else prompt,
        output_tokens=record.output_tokens,
        request_id=record.request_id,
        slices=tuple(slices),
    )


def neighbours(piece: Piece, index: int, batch: Batch) -> list[Neighbour]:
    """Prompts of others that were computed during the piece, by how long.

    Of a stall by prefill only those that can have caused it, and no longer than they can.
    """
    stalled = piece.stage == "stall_prefill"
    found = []
    for prefill in batch.prefills(piece.start_ns, piece.end_ns, other_than=index):
        overlap = min(piece.end_ns, prefill.end_ns) - max(piece.start_ns, prefill.start_ns)
        if stalled:
            overlap = min(overlap, prefill.stall_ns)
        if overlap > 0:
            found.append(
                Neighbour(
                    index=prefill.index,
                    prompt_tokens=prefill.prompt_tokens,
                    overlap_s=overlap / 1e9,
                )
            )
    return sorted(found, key=lambda each: (-each.overlap_s, each.index))


def _slice(piece: Piece, flight: Flight, batch: Batch) -> TailSlice:
    shared = piece.stage in _SHARED or piece.role is not None
    near = neighbours(piece, flight.record.index, batch)[:_NEIGHBOURS_MAX] if shared else []
    return TailSlice(
        stage=piece.stage,
        role=piece.role,
        start_s=(piece.start_ns - flight.scheduled_ns) / 1e9,
        end_s=(piece.end_ns - flight.scheduled_ns) / 1e9,
        running=batch.running(piece.start_ns) if shared else None,
        prefills=tuple(near),
    )


def _rest(found: Sequence[Piece], flight: Flight) -> list[TailSlice]:
    """What is left, in order of first appearance: lengths are exact, places are not."""
    if not found:
        return []
    sums: dict[tuple[Stage, object], tuple[Piece, int]] = {}
    for piece in found:
        first, length = sums.get((piece.stage, piece.role), (piece, 0))
        sums[piece.stage, piece.role] = first, length + piece.end_ns - piece.start_ns
    at = found[0].start_ns - flight.scheduled_ns
    slices = []
    for first, length in sums.values():
        slices.append(
            TailSlice(
                stage=first.stage, role=first.role, start_s=at / 1e9, end_s=(at + length) / 1e9
            )
        )
        at += length
    return slices
