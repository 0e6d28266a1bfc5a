"""Server-sent events as bytes: cut a stream at the ends of events, without decoding it."""

from __future__ import annotations

__all__ = ["EventCutter", "events", "payload"]

_HELD_BYTES_MAX = 256 * 1024


class EventCutter:
    """Cuts a byte stream into runs of whole events.

    An event ends with an empty line. A stream uses one kind of line end throughout; it is found at
    the first event. `rest` holds the beginning of an event that is not complete yet, at most
    256 KiB: a longer one is passed on in parts, so that memory stays bounded.
    """

    __slots__ = ("_separator", "rest")

    def __init__(self) -> None:
        self.rest = b""
        self._separator = b""

    @property
    def separator(self) -> bytes:
        """What ends an event on this stream; b'\\n\\n' as long as none has ended."""
        return self._separator or b"\n\n"

    def cut(self, data: bytes) -> bytes:
        """Add bytes of the stream; returns the whole events that they complete (maybe none)."""
        if self.rest:
            data = self.rest + data
            self.rest = b""
        if not self._separator:
            self._separator = _find_separator(data)
        separator = self._separator
        at = data.rfind(separator) if separator else -1
        end = at + len(separator) if at >= 0 else 0
        if end == len(data) or len(data) - end > _HELD_BYTES_MAX:
            return data
        self.rest = data[end:]
        return data[:end]


def events(run: bytes, separator: bytes, edge: int) -> tuple[list[bytes], bytes, list[bytes]]:
    """A run of whole events as (the first ones, those in between uncut, the last ones).

    Up to twice `edge` events are all among the first; of more, `edge` are cut off at each end.
    """
    first: list[bytes] = []
    start = 0
    size = len(separator)
    for _ in range(2 * edge):
        end = run.find(separator, start)
        if end < 0:
            break
        end += size
        first.append(run[start:end])
        start = end
    if start == len(run):
        return first, b"", []
    last: list[bytes] = []
    end = len(run)
    middle = sum(map(len, first[:edge]))
    for _ in range(edge):
        begin = run.rfind(separator, middle, end - size) + size
        if begin < size or begin <= middle:
            break
        last.append(run[begin:end])
        end = begin
    return first[:edge], run[middle:end], last[::-1]


def payload(event: bytes) -> bytes:
    """The event's data lines, joined by newlines; b'' where there is none."""
    if event.startswith(b"data: ") and event.count(b"\n") <= 2 and b"\r" not in event:
        return event[6:].rstrip(b"\n")
    lines = (line for line in event.splitlines() if line.startswith(b"data:"))
    return b"\n".join(line[6:] if line[5:6] == b" " else line[5:] for line in lines)


def _find_separator(data: bytes) -> bytes:
    """The kind of empty line that comes first; b'' where there is none yet."""
    carriage_return = data.find(b"\r")
    if carriage_return < 0:
        return b"\n\n" if b"\n\n" in data else b""
    found = b""
    first = len(data)
    for separator in (b"\n\n", b"\r\n\r\n", b"\r\r"):
        at = data.find(separator)
        if 0 <= at < first:
            found, first = separator, at
    return found
