"""Reads one HTTP/1.1 response as its bytes arrive: what the load clients check answers with."""

from __future__ import annotations

__all__ = ["BadResponseError", "ResponseReader"]

HEAD_BYTES_MAX = 65_536


class BadResponseError(Exception):
    """The bytes are no HTTP/1.1 response, or more than one."""


class ResponseReader:
    """Status, head and body of one response; `reset` makes it ready for the next one.

    Knows Content-Length and chunked bodies without trailers. A body that ends with the connection
    is refused: no server of the benchmarks may send one on a connection that is kept.
    """

    __slots__ = ("_buffer", "_length", "head", "parts", "status")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the response read so far."""
        self._buffer = b""
        self._length: int | None = None
        self.status = 0
        self.head = b""
        self.parts: list[bytes] = []

    @property
    def body(self) -> bytes:
        """The body so far, without chunk framing."""
        return b"".join(self.parts)

    def feed(self, data: bytes) -> bool:
        """Take what arrived; True when the response is whole. Raises BadResponseError."""
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        if self.status == 0:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > HEAD_BYTES_MAX:
                    raise BadResponseError("a head of more than 64 KiB")
                self._buffer = data
                return False
            self._read_head(data[: end + 2])
            data = data[end + 4 :]
        return self._read_chunks(data) if self._length is None else self._read_sized(data)

    def _read_head(self, head: bytes) -> None:
        if not head.startswith(b"HTTP/1.1 ") or not head[9:12].isdigit():
            raise BadResponseError(f"no HTTP/1.1 response: {head[:40]!r}")
        self.status, self.head = int(head[9:12]), head.lower()
        if b"\r\ntransfer-encoding: chunked\r\n" in self.head:
            return
        _, found, value = self.head.partition(b"\r\ncontent-length:")
        if not found:
            raise BadResponseError("neither Content-Length nor chunked")
        self._length = int(value.partition(b"\r\n")[0])

    def _read_sized(self, data: bytes) -> bool:
        assert self._length is not None
        self._length -= len(data)
        if self._length < 0:
            raise BadResponseError("bytes after the end of the body")
        if data:
            self.parts.append(data)
        return self._length == 0

    def _read_chunks(self, data: bytes) -> bool:
        position = 0
        while (line_end := data.find(b"\r\n", position)) >= 0:
            try:
                size = int(data[position:line_end].partition(b";")[0], 16)
            except ValueError:
                raise BadResponseError(f"no chunk size: {data[position:line_end][:40]!r}") from None
            chunk_end = line_end + 2 + size
            if chunk_end + 2 > len(data):
                break
            if data[chunk_end : chunk_end + 2] != b"\r\n":
                raise BadResponseError("a chunk is longer than its size")
            position = chunk_end + 2
            if size == 0:
                if position != len(data):
                    raise BadResponseError("bytes after the end of the body")
                return True
            self.parts.append(data[line_end + 2 : chunk_end])
        self._buffer = data[position:]
        return False
