"""Experiment: which of two arms a request belongs to; the same in every process, and for ever."""

from __future__ import annotations

import hashlib
import math
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from mileage.core.request import Request

__all__ = [
    "ArmName",
    "ExperimentSplit",
    "Slot",
    "Sticky",
    "arm_of",
    "cycle_slots",
    "share_of",
    "slot_at",
]

ArmName: TypeAlias = Literal["a", "b"]
Sticky: TypeAlias = Literal["request", "tenant", "prefix"]
"""What stays in one arm: request: nothing beyond the request; tenant: all of a tenant; prefix: all
requests of a tenant whose prompts begin alike, and so the turns of a conversation."""

_CYCLE_MAX = 1000


class ExperimentSplit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How traffic is split. `ratio` is arm b's share of it.

    `slot_s` None: both arms run at the same time, and a hash decides. Else they take turns, in
    slots of that length since `began_s` (monotonic): where both need the same replicas, two limits
    cannot run at once (a switchback design). What arrives within `washout_s` of a change of arm is
    counted for neither: the replica still runs what the other arm has left.
    """

    name: str
    ratio: float
    sticky: Sticky = "request"
    seed: int = 0
    slot_s: float | None = None
    washout_s: float = 0.0
    began_s: float = 0.0


class Slot(NamedTuple):
    """The slot at some moment: whose it is, whether what arrives now counts, when it ends."""

    arm: ArmName
    counted: bool
    ends_s: float


def share_of(name: str, seed: int, key: str) -> float:
    """A place in [0, 1) for the key: uniform over keys, independent between names and seeds.

    BLAKE2b and not hash(): the same in every process and on every machine.
    """
    data = f"{name}\0{seed}\0{key}".encode()
    digest = hashlib.blake2b(data, digest_size=8, usedforsecurity=False).digest()
    return (int.from_bytes(digest, "little") >> 11) / (1 << 53)


def arm_of(split: ExperimentSplit, request: Request) -> ArmName:
    """The request's arm. Where the ratio grows, whoever was in arm b stays there."""
    if split.slot_s is not None:
        return slot_at(split, request.arrived_s).arm
    if split.ratio <= 0.0:
        return "a"
    return (
        "b" if share_of(split.name, split.seed, _key(split.sticky, request)) < split.ratio else "a"
    )


def _key(sticky: Sticky, request: Request) -> str:
    if sticky == "tenant":
        return f"t{request.tenant}"
    if sticky == "prefix" and request.prefix_key is not None:
        return f"p{request.prefix_key}"
    return f"r{request.id}"


def cycle_slots(ratio: float) -> int:
    """Slots after which each arm has had its part: one of them is that of the smaller arm.

    The ratio is kept as near as that can: half is 2 slots, a third or two thirds 3.
    """
    smaller = min(ratio, 1.0 - ratio)
    if smaller <= 0.0:
        return 1
    return min(_CYCLE_MAX, max(2, round(1.0 / smaller)))


def slot_at(split: ExperimentSplit, now_s: float) -> Slot:
    """The slot at this moment; `split.slot_s` must be set. The order in each cycle is random, by
    the seed: nothing that comes and goes with time can keep step with it."""
    slot_s = split.slot_s
    assert slot_s is not None
    index = max(0, math.floor((now_s - split.began_s) / slot_s))
    start_s = split.began_s + index * slot_s
    if start_s + slot_s <= now_s:  # by rounding: a slot that is over would be asked for again
        index, start_s = index + 1, start_s + slot_s
    arm = _slot_arm(split, index)
    changed = index == 0 or _slot_arm(split, index - 1) != arm
    counted = not changed or now_s - start_s >= split.washout_s
    return Slot(arm, counted, start_s + slot_s)


def _slot_arm(split: ExperimentSplit, index: int) -> ArmName:
    ratio = split.ratio
    if ratio <= 0.0:
        return "a"
    if ratio >= 1.0:
        return "b"
    slots = cycle_slots(ratio)
    cycle, place = divmod(index, slots)
    chosen = int(share_of(split.name, split.seed, f"s{cycle}") * slots)
    return "b" if (place == chosen) == (ratio <= 0.5) else "a"
