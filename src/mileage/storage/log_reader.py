"""LogDecoder: turns the bytes of one segment into records, and says what is damaged or missing."""

from __future__ import annotations

from typing import Final
from zlib import crc32

import msgspec

from mileage.core.errors import TraceError
from mileage.storage.record import (
    CHARGED,
    DETAILED,
    DROPPED,
    FINISH,
    FOOTER,
    HEADER,
    INTENT,
    NAMED,
    RECORD_BYTES_MAX,
    BriefRow,
    ChargedRow,
    DetailedRow,
    IntentRow,
    NamedRow,
    decode_brief,
    decode_charged,
    decode_detailed,
    decode_dropped,
    decode_footer,
    decode_intent,
    decode_named,
)

__all__ = ["DAMAGES_MAX", "Decoded", "LogDecoder"]

DAMAGES_MAX: Final = 8
"""Damaged places of one call that are described; all are counted."""

_HEADER_BYTES: Final = HEADER.size
_unpack: Final = HEADER.unpack_from


class Decoded(msgspec.Struct):
    """What one call found. An intent comes before its own end, whatever list they are in."""

    intents: list[IntentRow]
    brief: list[BriefRow]
    charged: list[ChargedRow]
    named: list[NamedRow]
    detailed: list[DetailedRow]
    dropped: list[tuple[str, list[int]]]
    damages: list[TraceError]
    damages_total: int = 0
    torn_bytes: int = 0
    """Bytes of a record whose writer died while it was writing it: was never acknowledged."""


class LogDecoder:
    """Decodes a segment piece by piece.

    `offset` is where the next piece has to begin in the file. A record that is not there whole is
    left for the next call, which gets its bytes again: a writer may still take it back. A record
    that does not match its checksum is skipped up to the next one that does, and reported as a
    TraceError that names the segment, the number of the record and its offset.
    """

    def __init__(self, path: str, marker: int, offset: int) -> None:
        self.path, self.offset = path, offset
        self.records = 0
        self.ended = False
        """A footer was read."""
        self.waiting = False
        """The last call stopped at bytes that are no valid record and was told not to skip."""
        self._marker = marker
        self._marker_bytes = marker.to_bytes(4, "little")
        self._damaged = False

    def feed(self, data: bytes, *, final: bool, skip: bool = True) -> Decoded:
        """Decode `data`, which begins at `offset`; move `offset` past what is done with.

        `final`: nothing will follow, so what is incomplete is torn. `skip` False: stop at a bad
        record (`waiting`) instead of skipping it, because its writer may be about to cut it off.
        """
        out = Decoded([], [], [], [], [], [], [])
        intents, brief, detailed = out.intents.append, out.brief.append, out.detailed.append
        charged, named = out.charged.append, out.named.append
        marker, size, at = self._marker, len(data), 0
        torn_at = -1
        self.waiting = False
        while at + _HEADER_BYTES <= size:
            mark, word, crc = _unpack(data, at)
            end = at + _HEADER_BYTES + (word & 0xFFFFFF)
            if mark == marker and word & 0xFFFFFF <= RECORD_BYTES_MAX:
                if end > size:
                    if not final:
                        break
                    torn_at = at if torn_at < 0 else torn_at
                    at = self._next_marker(data, at, final)
                    continue
                payload = data[at + _HEADER_BYTES : end]
                if crc32(payload, word) == crc:
                    try:
                        kind = word >> 24
                        if kind == INTENT:
                            intents(decode_intent(payload))
                        elif kind == FINISH:
                            brief(decode_brief(payload))
                        elif kind == NAMED:
                            named(decode_named(payload))
                        elif kind == CHARGED:
                            charged(decode_charged(payload))
                        elif kind == DETAILED:
                            detailed(decode_detailed(payload))
                        else:
                            self._rare(kind, payload, out, at)
                    except msgspec.DecodeError as error:
                        self._report(out, at, f"a record with a wrong content: {error}")
                    if torn_at >= 0:
                        self._report(out, torn_at, "a damaged record")
                        torn_at = -1
                    self._damaged = False
                    self.records += 1
                    at = end
                    continue
            if torn_at < 0:
                if not skip:
                    self.waiting = True
                    break
                if not self._damaged:
                    self._report(out, at, "a damaged record")
                    self._damaged = True
            at = self._next_marker(data, at, final)
        if final:
            if torn_at >= 0 or (at < size and not self._damaged):
                out.torn_bytes = size - (torn_at if torn_at >= 0 else at)
            at = size
        self.offset += at
        return out

    def _next_marker(self, data: bytes, at: int, final: bool) -> int:
        """Where the next record may begin after a bad one at `at`."""
        found = data.find(self._marker_bytes, at + 1)
        if found >= 0:
            return found
        return len(data) if final else max(at + 1, len(data) - len(self._marker_bytes) + 1)

    def _rare(self, kind: int, payload: bytes, out: Decoded, at: int) -> None:
        if kind == DROPPED:
            out.dropped.append(decode_dropped(payload))
        elif kind == FOOTER:
            self.ended = True
            expected, _ = decode_footer(payload)
            if expected != self.records:
                self._report(out, at, f"{expected} records were written, {self.records} are here")
        else:
            self._report(out, at, f"a record of the unknown kind {kind}")

    def _report(self, out: Decoded, at: int, what: str) -> None:
        out.damages_total += 1
        if len(out.damages) < DAMAGES_MAX:
            offset = self.offset + at
            out.damages.append(TraceError(self.path, self.records + 1, f"{what} at byte {offset}"))
