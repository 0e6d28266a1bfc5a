"""ProtoTrace: a trace in Perfetto's own format, written packet by packet.

Only what is needed of protocol buffers: numbers of fields are those of perfetto_trace.proto
(google/perfetto, protos/perfetto/trace).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import BinaryIO, Final

from mileage.dashboard.trace_writer import Value

__all__ = ["ProtoTrace"]

_SEQUENCE: Final = 1
_CLEARED, _NEEDED = 1, 2
_BEGIN, _END, _COUNTER = 1, 2, 4
_REALTIME, _BOOTTIME = 1, 6
_NAMES_MAX: Final = 1 << 16
"""Texts that are written once and then named by number; past it they are written out."""


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value & (1 << 64) - 1)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode("utf-8", "replace"))


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _fixed64(field: int, value: int) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<Q", value)


class ProtoTrace:
    """A TraceWriter. A clock snapshot says that times are UTC."""

    def __init__(self, file: BinaryIO) -> None:
        self._write = file.write
        self._uuid = 0
        self._events: dict[str, int] = {}
        self._keys: dict[str, int] = {}
        self._fresh = b""
        self._started = False

    def process(self, name: str) -> int:
        """A group of tracks."""
        uuid = self._next()
        process = _number(1, uuid) + _text(6, name)
        self._packet(_bytes(60, _number(1, uuid) + _bytes(3, process)))
        return uuid

    def track(self, process: int, name: str) -> int:
        """A row of slices that do not overlap, or nest."""
        uuid = self._next()
        self._packet(_bytes(60, _number(1, uuid) + _number(5, process) + _text(2, name)))
        return uuid

    def counter(self, process: int, name: str, unit: str) -> int:
        """A curve."""
        uuid = self._next()
        counter = _bytes(8, _text(6, unit))
        self._packet(_bytes(60, _number(1, uuid) + _number(5, process) + _text(2, name) + counter))
        return uuid

    def begin(
        self,
        track: int,
        name: str,
        at_ns: int,
        args: Mapping[str, Value],
        *,
        flow_from: int | None = None,
        flow_to: int | None = None,
    ) -> None:
        """A slice begins. An arrow leaves it with the id `flow_from`, or ends in it (`flow_to`)."""
        event = _number(9, _BEGIN) + _number(11, track) + self._name(name)
        for key, value in args.items():
            event += _bytes(4, self._key(key) + _value(value))
        if flow_from is not None:
            event += _fixed64(47, flow_from)
        if flow_to is not None:
            event += _fixed64(48, flow_to)
        self._event(event, at_ns)

    def end(self, track: int, at_ns: int) -> None:
        """The slice that began last and has not ended, ends."""
        self._event(_number(9, _END) + _number(11, track), at_ns)

    def count(self, counter: int, at_ns: int, value: float) -> None:
        """The curve has this value from then on."""
        self._event(_number(9, _COUNTER) + _number(11, counter) + _double(44, value), at_ns)

    def finish(self) -> None:
        """Nothing follows."""
        self._start(0)

    def _next(self) -> int:
        self._uuid += 1
        return self._uuid

    def _event(self, event: bytes, at_ns: int) -> None:
        self._start(at_ns)
        fresh, self._fresh = self._fresh, b""
        interned = _bytes(12, fresh) if fresh else b""
        self._packet(_number(8, at_ns) + interned + _bytes(11, event) + _number(13, _NEEDED))

    def _start(self, at_ns: int) -> None:
        if self._started:
            return
        self._started = True
        clocks = b"".join(
            _bytes(1, _number(1, clock) + _number(2, at_ns)) for clock in (_REALTIME, _BOOTTIME)
        )
        self._packet(_bytes(6, clocks) + _number(13, _CLEARED))

    def _packet(self, packet: bytes) -> None:
        self._write(_bytes(1, packet + _number(10, _SEQUENCE)))

    def _name(self, name: str) -> bytes:
        number = self._interned(self._events, 2, name)
        return _text(23, name) if number is None else _number(10, number)

    def _key(self, key: str) -> bytes:
        number = self._interned(self._keys, 3, key)
        return _text(10, key) if number is None else _number(1, number)

    def _interned(self, table: dict[str, int], field: int, text: str) -> int | None:
        number = table.get(text)
        if number is None and len(table) < _NAMES_MAX:
            number = table[text] = len(table) + 1
            self._fresh += _bytes(field, _number(1, number) + _text(2, text))
        return number


def _value(value: Value) -> bytes:
    if isinstance(value, bool):
        return _number(2, int(value))
    if isinstance(value, int):
        return _number(4, value)
    return _double(5, value) if isinstance(value, float) else _text(6, value)
