"""Records of the request log: how intents and ends of requests become bytes, and what bytes mean.

A record is a 12-byte header and a msgpack payload. The header holds a marker (random per writer,
so that text inside a record cannot pass for one), the kind with the payload's length, and the
CRC-32 of the payload that starts from that kind and length. Payloads are arrays in a fixed order.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, TypeAlias, get_args
from zlib import crc32

import msgspec
from msgspec.structs import astuple

from mileage.core.request import Endpoint, Request
from mileage.core.timeline import Outcome, RequestTimeline

__all__ = [
    "BRIEF_FIELDS",
    "CHARGED",
    "CHARGED_FIELDS",
    "DETAILED",
    "DROPPED",
    "FINISH",
    "FINISH_FIELDS",
    "FOOTER",
    "HEADER",
    "INTENT",
    "NAMED",
    "NAMED_FIELDS",
    "RECORD_BYTES_MAX",
    "BriefRow",
    "ChargedRow",
    "DetailedRow",
    "IntentRow",
    "NamedRow",
    "RecordEncoder",
    "decode_brief",
    "decode_charged",
    "decode_detailed",
    "decode_dropped",
    "decode_footer",
    "decode_intent",
    "decode_named",
    "encode_token_times",
]

RECORD_BYTES_MAX: Final = 1 << 18
"""Bound of a payload; a larger one loses its token times, then the ends of its texts."""
TEXT_CHARS_MAX: Final = 1024
"""What is kept of each text of a record that is too large or not valid Unicode."""

HEADER: Final = struct.Struct("<III")
"""Marker, kind << 24 | payload length, CRC-32."""

INTENT: Final = 1
FINISH: Final = 2
"""The end of a request without a stream's details: the first BRIEF_FIELDS fields."""
DETAILED: Final = 3
"""The end of a request, all fields."""
DROPPED: Final = 4
"""Requests whose end could not be written; their intents will see no other end."""
FOOTER: Final = 5
"""The writer has closed the segment."""
CHARGED: Final = 6
"""As FINISH, and what the request was charged: CHARGED_FIELDS."""
NAMED: Final = 7
"""As CHARGED, and who it was for: NAMED_FIELDS."""

FINISH_FIELDS: Final = (
    "id",
    "tenant",
    "model",
    "endpoint",
    "stream",
    "arrived_at_utc_ns",
    "outcome",
    "status",
    "replica",
    "attempts",
    "reason",
    "dispatched_s",
    "first_token_s",
    "last_token_s",
    "finished_s",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "output_tokens_counted",
    "itl_mean_s",
    "itl_p99_s",
    "itl_max_s",
    "token_times",
    "trace_id",
    "merged_into",
    "merged_members",
    "gpu_ns",
    "cost_nano_usd",
    "key",
    "adapter",
    "labels",
)
"""The fields of RequestTimeline in their order there. The format: it changes with its version."""
BRIEF_FIELDS: Final = FINISH_FIELDS.index("reasoning_tokens")
_TOKEN_TIMES: Final = FINISH_FIELDS.index("token_times")
_CHARGE: Final = FINISH_FIELDS.index("gpu_ns")
_NAMES: Final = FINISH_FIELDS.index("key")
CHARGED_FIELDS: Final = FINISH_FIELDS[:BRIEF_FIELDS] + FINISH_FIELDS[_CHARGE:_NAMES]
NAMED_FIELDS: Final = FINISH_FIELDS[:BRIEF_FIELDS] + FINISH_FIELDS[_CHARGE:]

IntentRow: TypeAlias = tuple[int, str, str, Endpoint, bool, int]
"""id, tenant, model, endpoint, stream, arrived_at_utc_ns."""
BriefRow: TypeAlias = tuple[
    int,
    str,
    str,
    Endpoint,
    bool,
    int,
    Outcome,
    int | None,
    str | None,
    int,
    str | None,
    float | None,
    float | None,
    float | None,
    float | None,
    int | None,
    int | None,
    int | None,
]
ChargedRow: TypeAlias = tuple[
    int,
    str,
    str,
    Endpoint,
    bool,
    int,
    Outcome,
    int | None,
    str | None,
    int,
    str | None,
    float | None,
    float | None,
    float | None,
    float | None,
    int | None,
    int | None,
    int | None,
    int | None,
    int | None,
]
"""CHARGED_FIELDS."""
NamedRow: TypeAlias = tuple[
    int,
    str,
    str,
    Endpoint,
    bool,
    int,
    Outcome,
    int | None,
    str | None,
    int,
    str | None,
    float | None,
    float | None,
    float | None,
    float | None,
    int | None,
    int | None,
    int | None,
    int | None,
    int | None,
    str | None,
    str | None,
    str | None,
]
"""NAMED_FIELDS."""
DetailedRow: TypeAlias = tuple[
    int,
    str,
    str,
    Endpoint,
    bool,
    int,
    Outcome,
    int | None,
    str | None,
    int,
    str | None,
    float | None,
    float | None,
    float | None,
    float | None,
    int | None,
    int | None,
    int | None,
    int | None,
    int | None,
    float | None,
    float | None,
    float | None,
    bytes | None,
    str | None,
    int | None,
    int | None,
    int | None,
    int | None,
    str | None,
    str | None,
    str | None,
]
"""As BriefRow, and the rest of FINISH_FIELDS; token_times is a msgpack array, None where empty."""

_NO_DETAIL: Final = (None, None, None, None, None, (), None, None, None)
_NO_CHARGE: Final = (None,) * (len(FINISH_FIELDS) - _CHARGE)
_NO_NAMES: Final = (None,) * (len(FINISH_FIELDS) - _NAMES)
_OLDER_LENGTHS: Final = (_NAMES, _CHARGE, FINISH_FIELDS.index("merged_into"))
"""Fields that detailed records had before they had all that they have now."""
_encode: Final = msgspec.msgpack.Encoder().encode
_pack: Final = HEADER.pack

encode_token_times: Final = _encode
decode_intent: Final = msgspec.msgpack.Decoder(IntentRow).decode
decode_brief: Final = msgspec.msgpack.Decoder(BriefRow).decode
_decode_detailed: Final = msgspec.msgpack.Decoder(DetailedRow).decode
decode_charged: Final = msgspec.msgpack.Decoder(ChargedRow).decode
decode_named: Final = msgspec.msgpack.Decoder(NamedRow).decode
_decode_older: Final = [
    msgspec.msgpack.Decoder(tuple[get_args(DetailedRow)[:length]]).decode  # type: ignore[misc]
    for length in _OLDER_LENGTHS
]
decode_dropped: Final = msgspec.msgpack.Decoder(tuple[str, list[int]]).decode
"""Why the ends were not written, and the ids of their requests."""
decode_footer: Final = msgspec.msgpack.Decoder(tuple[int, bool]).decode
"""Records before this one, and whether the writer ended here (else another segment follows)."""


def decode_detailed(payload: bytes) -> DetailedRow:
    """A detailed end, also one that an older version wrote; raises msgspec.DecodeError."""
    try:
        return _decode_detailed(payload)
    except msgspec.ValidationError:
        for decode in _decode_older:
            try:
                row: tuple[Any, ...] = decode(payload)
            except msgspec.ValidationError:
                continue
            return (*row, *(None,) * (len(FINISH_FIELDS) - len(row)))
        raise


_INTENT_WORD: Final = INTENT << 24
_FINISH_WORD: Final = FINISH << 24
_DETAILED_WORD: Final = DETAILED << 24
_CHARGED_WORD: Final = CHARGED << 24
_NAMED_WORD: Final = NAMED << 24
_UNENCODABLE: Final = (OverflowError, UnicodeEncodeError)


class RecordEncoder:
    """Encodes the records of one writer. Never raises for what a request may contain.

    A number beyond 64 bits becomes None, a text that is no valid Unicode or makes the record too
    large is cut and repaired. `token_times` False leaves the times of single tokens out.
    """

    __slots__ = ("_marker", "_token_times")

    def __init__(self, marker: int, *, token_times: bool = True) -> None:
        self._marker, self._token_times = marker, token_times

    def intent(self, request: Request, arrived_at_utc_ns: int) -> bytes:
        """The record of a request that is about to be dispatched."""
        row = (
            request.id,
            request.tenant,
            request.model,
            request.endpoint,
            request.stream,
            arrived_at_utc_ns,
        )
        try:
            payload = _encode(row)
        except _UNENCODABLE:
            payload = _encode(_repaired(row))
        length = len(payload)
        if length > RECORD_BYTES_MAX:
            payload = _encode(_repaired(row))
            length = len(payload)
        word = _INTENT_WORD | length
        return _pack(self._marker, word, crc32(payload, word)) + payload

    def finish(self, timeline: RequestTimeline) -> bytes:
        """The record of a request that has ended."""
        row: tuple[Any, ...] = astuple(timeline)
        try:
            if row[BRIEF_FIELDS:_CHARGE] == _NO_DETAIL:
                if row[_NAMES:] != _NO_NAMES:
                    word, row = _NAMED_WORD, row[:BRIEF_FIELDS] + row[_CHARGE:]
                elif row[_CHARGE:] != _NO_CHARGE:
                    word, row = _CHARGED_WORD, row[:BRIEF_FIELDS] + row[_CHARGE:_NAMES]
                else:
                    word, row = _FINISH_WORD, row[:BRIEF_FIELDS]
            else:
                word, row = _DETAILED_WORD, self._detailed(row)
            payload = _encode(row)
        except _UNENCODABLE:
            word, row = _DETAILED_WORD, _without_token_times(astuple(timeline))
            payload = _encode(_repaired(row))
        if len(payload) > RECORD_BYTES_MAX:
            payload = _encode(_without_token_times(row))
            if len(payload) > RECORD_BYTES_MAX:
                payload = _encode(_repaired(_without_token_times(row)))
        word |= len(payload)
        return _pack(self._marker, word, crc32(payload, word)) + payload

    def dropped(self, reason: str, ids: Sequence[int]) -> bytes:
        """The record of ends that could not be written, once one can be written again."""
        return self._record(DROPPED, _encode((reason, ids)))

    def footer(self, records: int, *, last: bool) -> bytes:
        """The last record of a segment that has `records` others; `last`: of its writer, too."""
        return self._record(FOOTER, _encode((records, last)))

    def _detailed(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        times = row[_TOKEN_TIMES]
        blob = encode_token_times(times) if times and self._token_times else None
        return (*row[:_TOKEN_TIMES], blob, *row[_TOKEN_TIMES + 1 :])

    def _record(self, kind: int, payload: bytes) -> bytes:
        word = kind << 24 | len(payload)
        return _pack(self._marker, word, crc32(payload, word)) + payload


def _without_token_times(row: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(row) <= _TOKEN_TIMES:
        return row
    return (*row[:_TOKEN_TIMES], None, *row[_TOKEN_TIMES + 1 :])


def _repaired(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_repaired_value(value) for value in row)


def _repaired_value(value: Any) -> Any:
    if isinstance(value, str):
        return value[:TEXT_CHARS_MAX].encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return None
    return value
