"""A plain HTTP/1.1 client for tests: sends exact bytes, reads answers strictly, one by one."""

from __future__ import annotations

import socket
import ssl
from types import TracebackType
from typing import Any, Self

import msgspec

__all__ = ["Answer", "RawClient", "events_of", "get", "post"]

TIMEOUT_S = 60.0


class Answer(msgspec.Struct, frozen=True):
    """One answer; header names are lower case, chunks are joined in `body`."""

    status: int
    headers: dict[str, str]
    body: bytes
    chunks: int = 0

    @property
    def json(self) -> Any:
        """The decoded body."""
        return msgspec.json.decode(self.body)


def get(path: str, *headers: str) -> bytes:
    """The bytes of a GET."""
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def post(path: str, body: dict[str, Any] | bytes, *headers: str, version: str = "1.1") -> bytes:
    """The bytes of a POST with a length; a dict becomes JSON."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = [f"POST {path} HTTP/{version}", "Host: localhost", "Content-Type: application/json"]
    lines += [*headers, f"Content-Length: {len(data)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def events_of(body: bytes) -> list[Any]:
    """The data of a whole event stream: decoded JSON, or "[DONE]". Every event must be whole."""
    assert body.endswith(b"\n\n"), f"the stream ends inside an event: {body[-200:]!r}"
    found: list[Any] = []
    for event in body.decode().split("\n\n")[:-1]:
        data = [line[6:] for line in event.splitlines() if line.startswith("data: ")]
        assert len(data) == 1, f"an event without its one data line: {event!r}"
        found.append("[DONE]" if data[0] == "[DONE]" else msgspec.json.decode(data[0]))
    return found


class RawClient:
    """One connection to 127.0.0.1."""

    def __init__(
        self,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        receive_bytes: int | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`receive_bytes`: size of the socket's buffer, for a client that reads slowly."""
        self._socket = socket.socket()
        if receive_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(("127.0.0.1", port))
        except OSError:
            self._socket.close()
            raise
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")
        self._data = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close; twice is fine."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def ask(self, data: bytes) -> Answer:
        """Send a request and read its answer."""
        self.send(data)
        return self.read()

    def read(self) -> Answer:
        """The next answer, whole."""
        status, headers = self.read_head()
        if headers.get("transfer-encoding") == "chunked":
            parts = list(iter(self.read_chunk, b""))
            return Answer(status, headers, b"".join(parts), len(parts))
        if "content-length" in headers:
            return Answer(status, headers, self._take(int(headers["content-length"])))
        if status == 204 or status < 200:
            return Answer(status, headers, b"")
        return Answer(status, headers, self.read_to_end())

    def read_head(self) -> tuple[int, dict[str, str]]:
        """The next answer's status and headers."""
        first, *lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1", first
        headers: dict[str, str] = {}
        for line in lines:
            name, value = line.split(": ", 1)
            assert name.lower() not in headers, f"{name} twice in {lines}"
            headers[name.lower()] = value
        return int(status), headers

    def read_chunk(self) -> bytes:
        """The next chunk; b'' is the last one."""
        size = int(self._until(b"\r\n"), 16)
        data = self._take(size)
        assert self._take(2) == b"\r\n"
        return data

    def read_to_end(self) -> bytes:
        """All until the server closes."""
        while self._receive():
            pass
        data, self._data = self._data, b""
        return data

    def closed(self) -> bool:
        """The server closes now, without another byte."""
        return not self._data and not self._receive()

    def _receive(self) -> bool:
        data = self._socket.recv(65_536)
        self._data += data
        return bool(data)

    def _until(self, separator: bytes) -> bytes:
        while separator not in self._data:
            assert self._receive(), f"closed after {self._data[:500]!r}"
        found, _, self._data = self._data.partition(separator)
        return found

    def _take(self, size: int) -> bytes:
        while len(self._data) < size:
            assert self._receive(), f"closed after {len(self._data)} of {size} bytes"
        data, self._data = self._data[:size], self._data[size:]
        return data
