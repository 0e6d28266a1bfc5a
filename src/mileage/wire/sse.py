"""Server-sent events as bytes: cut a stream at the ends of events, without decoding it."""

from __future__ import annotations

__all__ = ["EventCutter", "edges", "payload"]

_HELD_BYTES_MAX = 256 * 1024


class EventCutter:
    """Cuts a byte stream into runs of whole events.

    An event ends with an empty line. Most streams use one kind of line end throughout; where the
    known one is not found (a server's own pings may have another), another is looked for. `rest`
    holds the beginning of an event that is not complete yet, at most 256 KiB: a longer one is
    passed on in parts, so that memory stays bounded.
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
        separator = self._separator
        at = data.rfind(separator) if separator else -1
        if at < 0 and (found := _find_separator(data)):
            self._separator = separator = found
            at = data.rfind(separator)
        end = at + len(separator) if at >= 0 else 0
        if end == len(data) or len(data) - end > _HELD_BYTES_MAX:
            return data
        self.rest = data[end:]
        return data[:end]


def edges(run: bytes, separator: bytes, first: int, last: int) -> tuple[list[int], list[int]]:
    """Where the first events of a run begin and end, and where its last ones do.

    Each list holds one offset more than events, the end of the last of them. Up to `first + last`
    events are all among the first ones, and the second list is empty; of more, so many are found
    at each end, and those in between are not looked at.
    """
    size = len(separator)
    ends = [0]
    end = 0
    for _ in range(first + last):
        end = run.find(separator, end) + size
        if end < size:
            end = len(run)  # an endless event's beginning, passed on in parts
        ends.append(end)
        if end == len(run):
            return ends, []
    begins = [len(run)]
    for _ in range(last):
        begins.append(run.rfind(separator, ends[first], begins[-1] - size) + size)
    begins.reverse()
    return ends[: first + 1], begins


def payload(event: bytes) -> bytes:
    """The event's data lines, joined by newlines; b'' where there is none."""
    if event.startswith(b"data: ") and event.find(b"\n", 6) >= len(event) - 2:
        return event[6:-2]  # the usual form, one line
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
