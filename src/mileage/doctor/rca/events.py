"""Events: what was deployed, configured, started or lost, and what of it came before a change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, Literal

import msgspec

from mileage.ledger.replica_time import ReplicaTime

__all__ = ["Event", "EventKind", "Precedent", "precedents", "replica_events"]

EventKind = Literal["config", "deploy", "restart", "replica_up", "replica_down", "scale", "clock"]

_NS_PER_S: Final = 1_000_000_000
_DAY_S: Final = 86_400.0


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that somebody did, or that happened, at one moment."""

    at_utc_s: float
    kind: EventKind
    node: str
    """Whom it is of: `gateway`, `replica:NAME`, ..."""
    detail: str
    version: int | None = None
    """Of the configuration that came into force."""


class Precedent(msgspec.Struct, frozen=True, kw_only=True):
    """An event before a change."""

    event: Event
    lead_s: float
    """From the event to the change; below 0 where the grid is too coarse to tell the order."""
    chance_ratio: float
    """How likely an event of this kind would lie so near by chance, at the rate of such events."""


def replica_events(times: Iterable[ReplicaTime], *, gap_min_s: float = 120.0) -> list[Event]:
    """Replicas that came, went, or were given other GPUs, by what is on record of their states.

    A stretch of which nothing is on record is the gateway's own absence where it is longer than
    `gap_min_s`: then nobody knows what the replica did, and nothing is said.
    """
    by_replica: dict[str, list[ReplicaTime]] = {}
    for each in times:
        by_replica.setdefault(each.replica, []).append(each)
    found: list[Event] = []
    for name, stretches in by_replica.items():
        ordered = sorted(stretches, key=lambda each: each.from_utc_ns)
        for before, after in pairwise(ordered):
            if (after.from_utc_ns - before.until_utc_ns) / _NS_PER_S <= gap_min_s:
                found += _change(f"replica:{name}", before, after)
    return sorted(found, key=lambda each: (each.at_utc_s, each.node))


def _change(node: str, before: ReplicaTime, after: ReplicaTime) -> list[Event]:
    at_utc_s = after.from_utc_ns / _NS_PER_S
    if before.state != after.state:
        if after.state == "up":
            return [Event(at_utc_s=at_utc_s, kind="replica_up", node=node, detail="came up")]
        if before.state == "up":
            detail = "went down" if after.state == "down" else "starts anew"
            kind: EventKind = "replica_down" if after.state == "down" else "restart"
            return [Event(at_utc_s=at_utc_s, kind=kind, node=node, detail=detail)]
        return []
    if (before.gpus, before.gpu) != (after.gpus, after.gpu):
        detail = f"{before.gpus:g} {before.gpu or 'GPUs'} became {after.gpus:g} {after.gpu}".strip()
        return [Event(at_utc_s=at_utc_s, kind="deploy", node=node, detail=detail)]
    return []


def precedents(
    events: Sequence[Event],
    onset_utc_s: float,
    *,
    span_s: float,
    step_s: float,
    before_s: float = 900.0,
) -> list[Precedent]:
    """Events at most `before_s` before the change, or within the step in which it was first seen,
    the nearest first. `span_s`: how long the record is, for the rate of such events."""
    found = []
    for event in events:
        lead_s = onset_utc_s - event.at_utc_s
        if -step_s <= lead_s <= before_s:
            alike = sum(each.kind == event.kind for each in events)
            window_s = max(lead_s, 0.0) + 2 * step_s
            expected = alike / max(span_s, _DAY_S / 24, window_s) * window_s
            chance_ratio = 1.0 - math.exp(-expected)
            found.append(Precedent(event=event, lead_s=lead_s, chance_ratio=chance_ratio))
    return sorted(found, key=lambda each: (abs(each.lead_s), each.event.node))
