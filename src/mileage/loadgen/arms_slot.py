"""Slot: what one arm of an A/B run got in one pair, and what of it is measured."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from mileage.loadgen.arms_slots import Arm
from mileage.loadgen.run import LoadRun
from mileage.measure.server_use import ServerUse

__all__ = ["Slot", "washed"]


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """What one arm got in one pair. Of a mirrored pair both arms' slots are of one run."""

    pair: int
    arm: Arm
    order: Literal[0, 1] | None
    """0: first of its pair, 1: second; None: mirrored."""
    began_s: float
    """On time.monotonic()."""
    load: LoadRun
    """Its records are those of the arm."""
    planned: int
    """Calls of the measured window."""
    applied: str | None = None
    """What said that the arm's settings are in force."""
    use: ServerUse | None = None


def washed(load: LoadRun, count: int) -> LoadRun:
    """The slot of a closed loop without its first `count` requests, in the order of the plan.

    By requests and not by time, both arms are measured on the same requests, however long these
    take; an arm that is slow would else be measured on fewer, and a fast one on none.
    """
    if not count:
        return load
    records = sorted(load.records, key=lambda record: record.index)
    kept = records[count:]
    start_s = min((record.scheduled_s for record in kept), default=load.end_s)
    begin = [replace(record, phase="warmup") for record in records[:count]]
    return replace(load, records=begin + kept, start_s=start_s)
