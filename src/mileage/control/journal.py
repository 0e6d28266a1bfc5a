"""Journal codec: segments of what the controller saw and did, in batches of records."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, get_args
from zlib import crc32

import msgspec
from msgspec.structs import astuple

from mileage.core.actions import Action
from mileage.core.errors import TraceError
from mileage.core.events import Event

__all__ = [
    "BATCH_BYTES_MAX",
    "FORMAT_VERSION",
    "HEADER_BYTES_MAX",
    "BatchEncoder",
    "Columns",
    "Handled",
    "JournalEnd",
    "JournalEnding",
    "JournalHeader",
    "columns",
    "encode_header",
    "kinds",
]

FORMAT_VERSION: Final = 2
BATCH_BYTES_MAX: Final = (1 << 24) - 1
HEADER_BYTES_MAX: Final = 1 << 30

MAGIC: Final = b"MILEAGEJ"
PREFIX: Final = struct.Struct("<8sIII")
"""Magic, format version, length and CRC-32 of the header; the CRC-32 of these follows."""
PREFIX_BYTES: Final = PREFIX.size + 4
FRAME: Final = struct.Struct("<II")
"""Guarded length of the batch, CRC-32 of it and of all before it."""
END_CODE: Final = -1

_pack: Final = FRAME.pack

Columns = tuple[tuple[str, tuple[str, ...]], ...]
"""Kinds of event or action by code, each with the names of its fields in order."""

Handled = tuple[float, Event, Sequence[Action], str | None]
"""One call of the controller: when, what it was told, what it answered, or what it raised."""

JournalEnding = Literal["rotated", "stopped"]
"""rotated: the next segment goes on from here; stopped: the worker ended."""


class JournalHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment begins with: enough to replay it without any other.

    `run` is the worker's start (microseconds since 1970) and `part` counts its segments from 1.
    `config` is the ControlConfig in force, as JSON. `state` is the controller as `dump_state` gives
    it, None where it was new: then it was made from `replicas`, `lacks`, `config` and
    `Random(seed)`. `began_s` is the monotonic time of `began_at_utc_ns`.
    """

    version: str
    worker: int
    run: int
    part: int
    began_at_utc_ns: int
    began_s: float
    replicas: tuple[str, ...]
    lacks: dict[str, tuple[str, ...]]
    config: str
    seed: int
    events: Columns
    actions: Columns
    state: bytes | None = None


class JournalEnd(msgspec.Struct, frozen=True):
    """The last record of a segment that was closed in order."""

    records: int
    ending: JournalEnding


def kinds(union: Any) -> dict[str, type[msgspec.Struct]]:
    """The classes of a tagged union by their tags, in the order of the union."""
    return {str(cls.__struct_config__.tag): cls for cls in get_args(union)}


def row_type(cls: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The struct whose fields are an event's row: its only field where that is one, else itself."""
    fields = msgspec.structs.fields(cls)
    inner = fields[0].type if len(fields) == 1 else None
    return inner if isinstance(inner, type) and issubclass(inner, msgspec.Struct) else cls


def columns(union: Any) -> Columns:
    """The columns that this version writes."""
    return tuple((tag, row_type(cls).__struct_fields__) for tag, cls in kinds(union).items())


def guard(length: int) -> int:
    """The length with a check in its top byte, so that a damaged one is no torn end."""
    return length | ((length ^ length >> 8 ^ length >> 16) & 0xFF ^ 0x5A) << 24


def encode_header(header: JournalHeader) -> bytes:
    """The first bytes of a segment. Raises ValueError for one past HEADER_BYTES_MAX."""
    payload = msgspec.msgpack.encode(header)
    if len(payload) > HEADER_BYTES_MAX:
        raise ValueError(f"a state of {len(payload)} bytes is past {HEADER_BYTES_MAX}")
    prefix = PREFIX.pack(MAGIC, FORMAT_VERSION, len(payload), crc32(payload))
    return prefix + crc32(prefix).to_bytes(4, "little") + payload


class BatchEncoder:
    """Encodes the batches of one segment at a time; each checksum goes on from the one before.

    A batch is cheap per record: what is done for each of them is little more than to put its
    fields in a row.
    """

    def __init__(self) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._events = _codes(Event)
        self._actions = _codes(Action)
        self._nested = {cls for cls in get_args(Event) if row_type(cls) is not cls}
        self._crc = 0
        self.records = 0
        """Records of this segment so far."""

    def begin(self, header: bytes) -> None:
        """The batches that follow are of the segment with this header (see `encode_header`)."""
        self._crc = crc32(header)
        self.records = 0

    def batch(self, calls: Sequence[Handled]) -> bytes:
        """The records of some calls of the controller, in order.

        Raises ValueError for a batch past BATCH_BYTES_MAX, and what msgspec raises for a value that
        cannot be stored; then nothing of it is counted.
        """
        events, codes, nested = self._events, self._actions, self._nested
        rows: list[tuple[Any, ...]] = []
        for now_s, event, actions, error in calls:
            kind = type(event)
            row = astuple(event)
            if kind in nested:
                row = astuple(row[0])
            if error is not None:
                rows.append((events[kind], now_s, row, None, error))
            elif actions:
                done = [(codes[type(action)], *astuple(action)) for action in actions]
                rows.append((events[kind], now_s, row, done))
            else:
                rows.append((events[kind], now_s, row))
        data = self._frame(rows)
        self.records += len(rows)
        return data

    def end(self, ending: JournalEnding) -> bytes:
        """The record that ends the segment, in a batch of its own."""
        return self._frame([(END_CODE, self.records, ending)])

    def _frame(self, rows: Sequence[tuple[Any, ...]]) -> bytes:
        data = self._encode(rows)
        length = len(data)
        if length > BATCH_BYTES_MAX:
            raise ValueError(f"a batch of {length} bytes is past {BATCH_BYTES_MAX}")
        self._crc = crc = crc32(data, self._crc)
        return _pack(guard(length), crc) + data


def _codes(union: Any) -> Mapping[type, int]:
    return {cls: code for code, cls in enumerate(get_args(union))}


def row_classes(
    written: Iterable[tuple[str, Sequence[str]]], union: Any, source: str
) -> list[tuple[type[msgspec.Struct], type[msgspec.Struct], tuple[str, ...]]]:
    """By code: the class, that of its row, and the names of the row's columns.

    Raises TraceError for kinds and columns that this version does not know.
    """
    known = kinds(union)
    found = []
    for tag, names in written:
        cls = known.get(tag)
        if cls is None:
            raise TraceError(source, 0, f"holds {tag!r}, which this version does not know")
        row = row_type(cls)
        unknown = set(names) - set(row.__struct_fields__)
        if unknown:
            raise TraceError(
                source, 0, f"{tag!r} has {sorted(unknown)}, which this version does not know"
            )
        found.append((cls, row, tuple(names)))
    return found
