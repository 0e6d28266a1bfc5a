"""Rows of the table `requests`: what a row is as a RequestTimeline, and when it ran."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from mileage.core.errors import LedgerError
from mileage.core.timeline import RequestTimeline
from mileage.storage.record import FINISH_FIELDS

__all__ = [
    "ATTRIBUTED_FIELDS",
    "FIGURE_MAX",
    "NS_PER_S",
    "SHARE_FIELDS",
    "Row",
    "bounded",
    "ran_between",
    "timeline_of",
]

Row: TypeAlias = tuple[Any, ...]

NS_PER_S: Final = 1_000_000_000
FIGURE_MAX: Final = 1 << 40
"""No request has more tokens, or costs more nano-dollars; so sums over an hour fit in 64 bits."""
SHARE_FIELDS: Final = (
    "attributed_ns",
    "attributed_low_ns",
    "attributed_high_ns",
    "attributed_prefill_ns",
    "attributed_recomputed_ns",
)
ATTRIBUTED_FIELDS: Final = (*FINISH_FIELDS, *SHARE_FIELDS, "booked")
"""What the attribution reads of a request, in this order."""

_OFFSET_MAX_S: Final = 1e7
_ARRIVED: Final = FINISH_FIELDS.index("arrived_at_utc_ns")
_STREAM: Final = FINISH_FIELDS.index("stream")
_REPLICA: Final = FINISH_FIELDS.index("replica")
_DISPATCHED: Final = FINISH_FIELDS.index("dispatched_s")
_LAST_TOKEN: Final = FINISH_FIELDS.index("last_token_s")
_FINISHED: Final = FINISH_FIELDS.index("finished_s")
_TOKEN_TIMES: Final = FINISH_FIELDS.index("token_times")
_FIELDS: Final = len(FINISH_FIELDS)

_decode_times: Final = msgspec.msgpack.Decoder(tuple[int, ...]).decode


def timeline_of(row: Row, path: str) -> RequestTimeline:
    """The request of a row that begins with FINISH_FIELDS. Raises LedgerError, naming the database
    and the request, where its token times cannot be read."""
    blob = row[_TOKEN_TIMES]
    try:
        times = _decode_times(blob) if blob else ()
    except msgspec.DecodeError as error:
        raise LedgerError(path, f"request {row[0]}: token_times: {error}") from error
    values = list(row[:_FIELDS])
    values[_STREAM], values[_TOKEN_TIMES] = bool(row[_STREAM]), times
    return RequestTimeline(*values)


def ran_between(row: Row) -> tuple[int, int] | None:
    """When its replica had the request, nanoseconds since 1970; None: no replica ever did."""
    dispatched_s = row[_DISPATCHED]
    if dispatched_s is None or not row[_REPLICA]:
        return None
    ended_s = row[_FINISHED]
    if ended_s is None:
        ended_s = row[_LAST_TOKEN]
    start_ns = row[_ARRIVED] + _offset_ns(dispatched_s)
    return start_ns, start_ns if ended_s is None else max(
        start_ns, row[_ARRIVED] + _offset_ns(ended_s)
    )


def bounded(figure: int | None) -> int:
    """The figure, 0 where it is not known or below that; FIGURE_MAX where it is above."""
    return 0 if figure is None else min(max(0, figure), FIGURE_MAX)


def _offset_ns(offset_s: float) -> int:
    return round(min(max(0.0, offset_s), _OFFSET_MAX_S) * NS_PER_S)
