"""Engine steps as slices on a track of their replica, and idle time between them as a curve."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mileage.dashboard.request_tracks import TraceCounts
from mileage.dashboard.trace_writer import TraceWriter
from mileage.ledger.engine_step import EngineStep

__all__ = ["write_steps"]


def write_steps(
    writer: TraceWriter,
    steps: Iterable[EngineStep],
    process_of: Callable[[str], int],
    counts: TraceCounts,
    *,
    since_ns: int = 0,
) -> int:
    """Write the steps that end after `since_ns`, of each replica in order; returns how many.

    `idle` is 1 between two steps and 0 in one. Steps that overlap the one before, which no engine
    has, are cut where that ends.
    """
    tracks: dict[str, tuple[int, int]] = {}
    ended_ns: dict[str, int] = {}
    written = 0
    for step in steps:
        end_ns = step.started_at_utc_ns + step.duration_ns
        if end_ns <= since_ns:
            continue
        found = tracks.get(step.replica)
        if found is None:
            process = process_of(step.replica)
            track = writer.track(process, "engine steps")
            found = tracks[step.replica] = (track, writer.counter(process, "idle", "ratio"))
        track, idle = found
        before_ns = ended_ns.get(step.replica)
        start_ns = step.started_at_utc_ns
        if before_ns is not None:
            start_ns = max(start_ns, before_ns)
        end_ns = max(start_ns, end_ns)
        if before_ns is None or start_ns > before_ns:
            if before_ns is not None:
                writer.count(idle, before_ns, 1.0)
            writer.count(idle, start_ns, 0.0)
        prefill = sum(use.prefill_tokens for use in step.uses)
        decode = sum(use.decode_tokens for use in step.uses)
        writer.begin(
            track,
            _kind(prefill, decode),
            start_ns,
            {
                "requests": len(step.uses),
                "prefill_tokens": prefill,
                "decode_tokens": decode,
                "context_tokens": sum(use.context_tokens for use in step.uses),
                "recomputed_tokens": sum(use.recomputed_tokens for use in step.uses),
            },
        )
        writer.end(track, end_ns)
        counts.saw(start_ns, end_ns)
        ended_ns[step.replica] = end_ns
        written += 1
    for replica, end_ns in ended_ns.items():
        writer.count(tracks[replica][1], end_ns, 1.0)
    return written


def _kind(prefill_tokens: int, decode_tokens: int) -> str:
    if prefill_tokens:
        return "mixed step" if decode_tokens else "prefill step"
    return "decode step" if decode_tokens else "step without requests"
