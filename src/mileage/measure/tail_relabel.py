"""Relabelling: parts of a call's stages go to what held a process at that moment."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Final

from msgspec.structs import replace

from mileage.measure.tail_flight import to_ns
from mileage.measure.tail_host import Pause
from mileage.measure.tail_pieces import Piece
from mileage.measure.tail_stage import CAUSES, Role, Stage

__all__ = ["Pauses", "relabelled"]

_SLACK_NS: Final = 5_000_000
"""After a pause a process works off what has come meanwhile; so late an event still counts as
delayed by it, and a pause that begins as late as the one before it."""
_WHOLE_RATIO: Final = 0.9
"""From here on a pause held its process all the time from its start to its end."""

_GENERATOR: Final[Sequence[Role]] = ("generator",)
_SERVED: Final[Sequence[Role]] = ("engine", "gateway", "generator")
_ROLES: Final[Mapping[Stage, Sequence[Role]]] = {
    "schedule": _GENERATOR,
    "send": _GENERATOR,
    "connect": ("gateway", "engine", "generator"),
    "transit": ("gateway", "generator"),
    "gateway_queue": ("engine", "gateway"),
    "upstream_wait": _SERVED,
    "prefill": _SERVED,
    "decode": _SERVED,
    "stall_prefill": _SERVED,
    "stall_engine": _SERVED,
    "stall": _SERVED,
    "answer": _SERVED,
}
"""Whose pauses can lengthen a stage; a stage that is not here was relabelled already."""

_OWNER: Final[Mapping[Stage, Role]] = {
    "schedule": "generator",
    "send": "generator",
    "gateway_queue": "engine",
    "upstream_wait": "engine",
    "prefill": "engine",
    "decode": "engine",
    "stall_prefill": "engine",
    "stall_engine": "engine",
    "stall": "engine",
    "answer": "engine",
}
"""Who works on the stage: any pause of it makes the stage longer. Who is held in the gateway's
queue waits for the engine to be done with others. A pause of anyone else only does
where it was still on when the event came that ended the stage, or already when the request was
sent, if that is all that is known of its way."""

_WORK: Final[frozenset[Stage]] = frozenset({"prefill", "decode", "answer"})
"""Time that the request needs anyway: of a pause whose moment is not known exactly as much as fits
is laid into the stages that are pure delay, and only the rest into these."""


class Pauses:
    """Pauses in the order in which they are laid over a call: by cause, then role, then time."""

    def __init__(self, pauses: Sequence[Pause]) -> None:
        groups: dict[tuple[int, int], list[Pause]] = {}
        for pause in pauses:
            if to_ns(pause.end_s) <= to_ns(pause.start_s):
                continue
            key = (CAUSES.index(pause.cause), _SERVED.index(pause.role))
            groups.setdefault(key, []).append(pause)
        self._held = _held(pauses)
        self._groups = []
        for key in sorted(groups):
            group = sorted(groups[key], key=lambda pause: pause.start_s)
            ends = list(accumulate((to_ns(pause.end_s) for pause in group), max))
            self._groups.append(([to_ns(pause.start_s) for pause in group], ends, group))

    def held(self, pause: Pause) -> tuple[int, int]:
        """From when to when the pause's process was held, by this and by what came next to it."""
        start, end = to_ns(pause.start_s), to_ns(pause.end_s)
        spans = self._held.get(pause.role, [])
        at = bisect_right(spans, start, key=itemgetter(0)) - 1
        if at >= 0 and spans[at][1] >= end:
            return spans[at]
        return start, end

    def overlapping(self, start_ns: int, end_ns: int) -> list[Pause]:
        """Those that have a part inside."""
        found: list[Pause] = []
        for starts, ends, group in self._groups:
            low, high = bisect_right(ends, start_ns), bisect_left(starts, end_ns)
            found += (p for p in group[low:high] if to_ns(p.end_s) > start_ns)
        return found


def relabelled(found: Sequence[Piece], pauses: Pauses) -> list[Piece]:
    """The pieces with what pauses took of them; they cover the same time without a gap.

    Pauses come in the order of `Pauses`, and what one took no later one takes. A pause takes at
    most its `busy_s`, less in proportion where a part of its window is outside the call.
    """
    pieces = list(found)
    if not pieces:
        return pieces
    starts = [piece.start_ns for piece in pieces]
    call_start, call_end = pieces[0].start_ns, pieces[-1].end_ns
    for pause in pauses.overlapping(call_start, call_end):
        start, end = to_ns(pause.start_s), to_ns(pause.end_s)
        inside = min(end, call_end) - max(start, call_start)
        share = min(1.0, pause.busy_s * 1e9 / (end - start))
        held = pauses.held(pause)
        _lay(pieces, starts, pause, held, round(share * inside))
    return pieces


def _held(pauses: Sequence[Pause]) -> dict[Role, list[tuple[int, int]]]:
    """By role the times in which it was held all the time, put together where they touch."""
    found: dict[Role, list[tuple[int, int]]] = {}
    for pause in sorted(pauses, key=lambda pause: pause.start_s):
        start, end = to_ns(pause.start_s), to_ns(pause.end_s)
        if pause.busy_s * 1e9 < _WHOLE_RATIO * (end - start):
            continue
        spans = found.setdefault(pause.role, [])
        if spans and start <= spans[-1][1] + _SLACK_NS:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
    return found


def _lay(
    pieces: list[Piece], starts: list[int], pause: Pause, held: tuple[int, int], left: int
) -> None:
    """Put the pause into the pieces that it overlaps, until nothing is `left` of it."""
    start, end = to_ns(pause.start_s), to_ns(pause.end_s)
    low = max(0, bisect_right(starts, start) - 1)
    high = bisect_left(starts, end)
    chosen = [i for i in range(low, high) if _delays(pieces[i], pause, held)]
    chosen.sort(key=lambda i: (pieces[i].stage in _WORK, i))
    taken: dict[int, int] = {}
    for i in chosen:
        if left <= 0:
            break
        piece = pieces[i]
        taken[i] = min(left, min(piece.end_ns, end) - max(piece.start_ns, start))
        left -= taken[i]
    for i in sorted(taken, reverse=True):
        parts = _cut(pieces[i], pause, start, taken[i])
        pieces[i : i + 1] = parts
        starts[i : i + 1] = [part.start_ns for part in parts]


def _delays(piece: Piece, pause: Pause, held: tuple[int, int]) -> bool:
    """Whether the pause can have made the piece longer; `held`: with what came next to it."""
    start, end = to_ns(pause.start_s), to_ns(pause.end_s)
    if min(piece.end_ns, end) <= max(piece.start_ns, start):
        return False
    if pause.role not in _ROLES.get(piece.stage, ()):
        return False
    if pause.cause == "pressure" and piece.stage in _WORK:
        return False  # the host's, and not seen of the process: what has no delay needs no reason
    if pause.role == _OWNER.get(piece.stage) or piece.event_ns <= held[1] + _SLACK_NS:
        return True
    return piece.asked_ns is not None and held[0] <= piece.asked_ns


def _cut(piece: Piece, pause: Pause, start: int, length: int) -> list[Piece]:
    """The piece with `length` of it, from where the pause begins in it, given to the pause."""
    begin = max(piece.start_ns, start)
    parts = (
        replace(piece, end_ns=begin),
        Piece(begin, begin + length, pause.cause, piece.event_ns, pause.role),
        replace(piece, start_ns=begin + length),
    )
    return [part for part in parts if part.end_ns > part.start_ns]
