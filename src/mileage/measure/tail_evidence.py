"""Evidence: what shows that a stage is the tail's first cause, in sentences with figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from mileage.measure.tail_batch import Batch
from mileage.measure.tail_flight import Flight, to_ns
from mileage.measure.tail_host import Pause
from mileage.measure.tail_pieces import Piece
from mileage.measure.tail_report import Neighbour, StageShare
from mileage.measure.tail_stage import Cause
from mileage.measure.tail_waterfall import neighbours

__all__ = ["evidence"]

_Slow: TypeAlias = Sequence[tuple[Flight, Sequence[Piece]]]

_PAUSE_TEXT: Mapping[Cause, str] = {
    "stopped": "was stopped",
    "gc": "collected garbage",
    "run_queue": "waited for a CPU",
    "page_fault": "waited for pages",
    "event_loop": "kept its event loop busy",
    "softirq": "gave its CPU to soft interrupts",
    "steal": "had its CPU taken by the hypervisor",
    "pressure": "was on a host short of memory or disk",
}
_SAID_MAX = 3


def evidence(
    first: StageShare,
    slow: _Slow,
    typical: Sequence[Flight],
    batches: Mapping[int, Batch],
    pauses: Sequence[Pause],
) -> tuple[str, ...]:
    """Sentences about the first cause: how many requests it hit, and what else was seen then."""
    hits = [
        (flight, piece)
        for flight, found in slow
        for piece in found
        if (piece.stage, piece.role) == (first.stage, first.role)
    ]
    if not hits:
        return ()
    longest_flight, longest = max(hits, key=lambda hit: hit[1].end_ns - hit[1].start_ns)
    said = [
        f"{len({f.record.index for f, _ in hits})} of {len(slow)} of the slowest requests had it; "
        f"the longest time was {_length_s(longest):.3f} s, in request "
        f"{longest_flight.record.index}, {longest.start_ns / 1e9:.3f} s into the run"
    ]
    if first.role is not None:
        said += _paused(first, hits, pauses)
    elif first.stage in ("stall_prefill", "upstream_wait"):
        said += _prefilled(first, hits, batches)
    elif first.stage == "stall_engine":
        running = batches[longest_flight.record.target].running(longest.start_ns)
        said.append(
            f"all {running} streams of the target were silent at once, and no prompt explains it: "
            "the engine, or what is before it, stood still"
        )
    elif first.stage in ("prefill", "decode", "answer"):
        said += _sizes(first, [flight for flight, _ in slow], typical)
    return tuple(said)


def _length_s(piece: Piece) -> float:
    return (piece.end_ns - piece.start_ns) / 1e9


def _paused(
    first: StageShare, hits: Sequence[tuple[Flight, Piece]], pauses: Sequence[Pause]
) -> list[str]:
    """The longest pauses of the process that fell into the requests' time."""
    spans = [(piece.start_ns, piece.end_ns) for _, piece in hits]
    met = [
        pause
        for pause in pauses
        if (pause.cause, pause.role) == (first.stage, first.role)
        and any(to_ns(pause.start_s) < end and to_ns(pause.end_s) > start for start, end in spans)
    ]
    met.sort(key=lambda pause: -pause.busy_s)
    said = []
    for pause in met[:_SAID_MAX]:
        pid = "" if pause.pid is None else f" (process {pause.pid})"
        detail = f": {pause.detail}" if pause.detail else ""
        said.append(
            f"the {pause.role}{pid} {_PAUSE_TEXT[pause.cause]} for {pause.busy_s:.3f} s "
            f"between {pause.start_s:.3f} s and {pause.end_s:.3f} s{detail}"
        )
    return said


def _prefilled(
    first: StageShare, hits: Sequence[tuple[Flight, Piece]], batches: Mapping[int, Batch]
) -> list[str]:
    """The prompts that were computed meanwhile, by how long they held others up."""
    held: Counter[int] = Counter()
    seen: dict[int, Neighbour] = {}
    alone = 0
    for flight, piece in hits:
        near = neighbours(piece, flight.record.index, batches[flight.record.target])
        alone += not near
        for each in near:
            held[each.index] += to_ns(each.overlap_s)
            seen[each.index] = each
    verb = "held up" if first.stage == "stall_prefill" else "was computed before"
    said = []
    for index, length in held.most_common(_SAID_MAX):
        tokens = seen[index].prompt_tokens
        size = "of unknown size" if tokens is None else f"of {tokens} tokens"
        said.append(
            f"the prompt {size} of request {index} {verb} these requests for "
            f"{length / 1e9:.3f} s in all"
        )
    if first.stage == "upstream_wait" and alone:
        said.append(
            f"{alone} of {len(hits)} waits had no other prompt of this run in them: the engine's "
            "own queue, its free slots, or load from elsewhere"
        )
    return said


def _sizes(first: StageShare, slow: Sequence[Flight], typical: Sequence[Flight]) -> list[str]:
    """Whether the slowest simply had more to compute."""
    name, what = ("prompt_tokens", "prompts")
    if first.stage != "prefill":
        name, what = "output_tokens", "answers"
    means = []
    for flights in (slow, typical):
        known = [size for f in flights if (size := getattr(f.record, name)) is not None]
        if not known:
            return []
        means.append(sum(known) / len(known))
    return [
        f"the slowest requests' {what} have {means[0]:.0f} tokens on average, those of typical "
        f"ones {means[1]:.0f}"
    ]
