"""CallRecords for tests of what is made of them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec

from mileage.measure.call_record import CallRecord

__all__ = ["answer", "streamed"]


def streamed(
    times_s: Sequence[float], events: Sequence[int] | None = None, **others: object
) -> CallRecord:
    """A stream with token events at these times, scheduled at 0, that ended well with the last."""
    record = CallRecord(
        index=0,
        phase="measured",
        outcome="ok",
        scheduled_s=0.0,
        ended_s=times_s[-1] if times_s else None,
        token_times_s=array("d", times_s),
        token_events=array("I", events or [1] * len(times_s)),
    )
    return msgspec.structs.replace(record, **others)


def answer(scheduled_s: float, ended_s: float | None, **others: object) -> CallRecord:
    """A whole answer, no stream, that ended well."""
    record = CallRecord(
        index=0,
        phase="measured",
        outcome="ok",
        scheduled_s=scheduled_s,
        ended_s=ended_s,
        stream=False,
    )
    return msgspec.structs.replace(record, **others)
