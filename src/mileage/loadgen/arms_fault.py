"""fault_of(): why a pair of slots ends an A/B run, as no further pair would tell anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from mileage.loadgen.arms_slot import Slot
from mileage.measure.call_record import CallRecord

__all__ = ["fault_of"]

_NEVER_THERE: Final = {
    "connect": "was never reached",
    "client_error": "refused every request",
    "malformed": "answers something else than what was asked for",
}
"""Failures of an arm that has never answered which are of how it is set up, not of what it is
worth: a wrong port, key, model or path."""


def fault_of(pair: Sequence[Slot], slots: Sequence[Slot]) -> str | None:
    """Why the run ends with this pair, the last of `slots`; None: it may go on.

    An arm that fails all the time while the other one answers is no reason: that arm is worse, and
    its failures show it. One is where nobody answers, so that neither arm can be said to be the
    cause, and where an arm was never there at all.
    """
    for slot in pair:
        if slot.load.plan_error is not None:
            return slot.load.plan_error
        if slot.load.given_up is not None:
            return f"arm {slot.arm}: {slot.load.given_up}"
    silent = [slot for slot in pair if _is_silent(slot)]
    if silent and len(silent) == len(pair):
        told = "; ".join(f"arm {slot.arm}: {_why(slot)}" for slot in silent)
        return f"neither arm answered any request of pair {pair[0].pair + 1}: {told}"
    for slot in silent:
        outcomes = {record.outcome for record in _lasting(slot)}
        if outcomes <= _NEVER_THERE.keys() and not _has_answered(slot, slots):
            (outcome, _), *_ = Counter(r.outcome for r in _lasting(slot)).most_common(1)
            return f"arm {slot.arm} {_NEVER_THERE[outcome]}: {_why(slot)}"
    return None


def _lasting(slot: Slot) -> list[CallRecord]:
    """Its requests, those of the wash-out too, but for those that their own client left."""
    return [record for record in slot.load.records if record.outcome != "cancelled"]


def _is_silent(slot: Slot) -> bool:
    records = _lasting(slot)
    return bool(records) and all(record.outcome != "ok" for record in records)


def _has_answered(slot: Slot, slots: Sequence[Slot]) -> bool:
    return any(
        record.outcome == "ok"
        for other in slots
        if other.arm == slot.arm
        for record in other.load.records
    )


def _why(slot: Slot) -> str:
    records = _lasting(slot)
    ((outcome, error), number), *_ = Counter((r.outcome, r.error) for r in records).most_common(1)
    count = f"{number} of {len(records)} requests: "
    return count + (f"{outcome}: {error}" if error else outcome)
