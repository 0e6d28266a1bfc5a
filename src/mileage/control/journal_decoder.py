"""JournalDecoder: turns the bytes of one journal segment into records, and says where it ends."""

from __future__ import annotations

from typing import Any, Final
from zlib import crc32

import msgspec

from mileage.control.journal import (
    END_CODE,
    FORMAT_VERSION,
    FRAME,
    HEADER_BYTES_MAX,
    MAGIC,
    PREFIX,
    PREFIX_BYTES,
    JournalEnd,
    JournalHeader,
    guard,
    row_classes,
)
from mileage.core.actions import Action
from mileage.core.errors import TraceError
from mileage.core.events import Event

__all__ = ["JournalDecoder", "JournalRecord"]

_LENGTH_MASK: Final = (1 << 24) - 1
_Kind = tuple[type[msgspec.Struct], type[msgspec.Struct], tuple[str, ...]]


class JournalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the controller: what it was told and when, and what it answered.

    `number` counts from 1 in its segment. `error` is the exception that the controller raised
    instead of an answer.
    """

    number: int
    now_s: float
    event: Event
    actions: tuple[Action, ...] = ()
    error: str | None = None


class JournalDecoder:
    """Takes a segment's bytes in pieces; `source` names it in errors.

    What a dead writer left half-written at the end is no error: `torn_bytes` tells its size.
    Damage before that is a TraceError with the number of the record, or the first one of a batch
    (0: the header).
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._rest = b""
        self._crc = 0
        self._events: list[_Kind] = []
        self._actions: list[_Kind] = []
        self._zeros = False
        self.header: JournalHeader | None = None
        """None until all of it has come."""
        self.end: JournalEnd | None = None
        """None until the segment's last record has come."""
        self.records = 0

    @property
    def torn_bytes(self) -> int:
        """Bytes at the end that make no whole batch of records."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[JournalRecord]:
        """The records that the next bytes complete."""
        data = self._rest + data if self._rest else data
        place = 0
        if self.header is None:
            place = self._read_header(data)
            if self.header is None:
                self._rest = data
                return []
        records: list[JournalRecord] = []
        size = len(data)
        while place + FRAME.size <= size:
            word, crc = FRAME.unpack_from(data, place)
            if self._zeros or not word:
                self._only_zeros(data[place:])
                break
            length = word & _LENGTH_MASK
            if guard(length) != word:
                raise self._damaged("its length is damaged")
            start = place + FRAME.size
            if start + length > size:
                break
            payload = data[start : start + length]
            if crc32(payload, self._crc) != crc:
                raise self._damaged("its checksum is wrong")
            self._crc = crc
            place = start + length
            records += self._batch(payload)
        self._rest = data[place:]
        return records

    def _only_zeros(self, data: bytes) -> None:
        """What a file system leaves where the machine lost power before the data was written."""
        if data.strip(b"\0"):
            raise self._damaged("its length is damaged")
        self._zeros = True

    def _damaged(self, why: str) -> TraceError:
        return TraceError(self._source, self.records + 1, why)

    def _read_header(self, data: bytes) -> int:
        """Read the header once it is all there; where the records begin."""
        head = data[: PREFIX.size]
        if head[: len(MAGIC)] != MAGIC[: len(head)]:
            raise TraceError(self._source, 0, "is no journal of mileage")
        if len(data) < PREFIX_BYTES:
            return 0
        if crc32(head).to_bytes(4, "little") != data[PREFIX.size : PREFIX_BYTES]:
            raise TraceError(self._source, 0, "its first bytes are damaged")
        version: int
        length: int
        _, version, length, crc = PREFIX.unpack(head)
        if version != FORMAT_VERSION:
            raise TraceError(
                self._source, 0, f"has format {version}; this version reads {FORMAT_VERSION}"
            )
        if length > HEADER_BYTES_MAX:
            raise TraceError(self._source, 0, "the header's length is damaged")
        end = PREFIX_BYTES + length
        if len(data) < end:
            return 0
        payload = data[PREFIX_BYTES:end]
        if crc32(payload) != crc:
            raise TraceError(self._source, 0, "the header's checksum is wrong")
        try:
            header = msgspec.msgpack.decode(payload, type=JournalHeader)
        except msgspec.MsgspecError as error:
            raise TraceError(self._source, 0, f"the header is not readable: {error}") from None
        self._events = row_classes(header.events, Event, self._source)
        self._actions = row_classes(header.actions, Action, self._source)
        self._crc = crc32(data[:end])
        self.header = header
        return end

    def _batch(self, payload: bytes) -> list[JournalRecord]:
        """Decode a batch; the record that ends the segment is none of those returned."""
        records = []
        number = self.records + 1
        try:
            for fields in msgspec.msgpack.decode(payload, type=list[list[Any]]):
                if self.end is not None:
                    raise ValueError("it follows the segment's end")
                if fields[0] == END_CODE:
                    self._ended(fields)
                    continue
                records.append(self._record(number, fields))
                self.records = number
                number += 1
        except (msgspec.MsgspecError, ValueError, TypeError, LookupError, RecursionError) as error:
            raise TraceError(self._source, number, f"is not readable: {error}") from None
        return records

    def _ended(self, fields: list[Any]) -> None:
        self.end = msgspec.convert({"records": fields[1], "ending": fields[2]}, JournalEnd)
        if self.end.records != self.records:
            raise ValueError(f"{self.records} records, and {self.end.records} were written")

    def _record(self, number: int, fields: list[Any]) -> JournalRecord:
        code, now_s, row, *answer = fields
        error = answer[1] if len(answer) > 1 else None
        actions = answer[0] if answer and error is None else []
        return JournalRecord(
            number=number,
            now_s=msgspec.convert(now_s, float),
            event=_made(self._events, code, row),
            actions=tuple(_made(self._actions, a[0], a[1:]) for a in actions),
            error=msgspec.convert(error, str | None),
        )


def _made(table: list[_Kind], code: int, values: list[Any]) -> Any:
    """The event or action of this code; a column that an older version lacks has its default."""
    if code < 0:
        raise LookupError(f"no kind {code}")
    cls, row, names = table[code]
    made = msgspec.convert(dict(zip(names, values, strict=True)), row)
    return made if cls is row else cls(made)
