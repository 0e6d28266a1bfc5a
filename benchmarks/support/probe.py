"""Probe: one request at a time, each on a connection of its own, with its answer checked."""

from __future__ import annotations

import socket
import time

from benchmarks.support.judges import Judge
from benchmarks.support.response import BadResponseError, ResponseReader

__all__ = ["Probe", "ask"]


class Probe:
    """Sends the same request whenever it is called; keeps count of what went wrong."""

    def __init__(self, port: int, request: bytes, judge: Judge) -> None:
        self._port, self._request, self._judge = port, request, judge
        self.sent = self.errors = 0
        self.first_error: str | None = None

    def __call__(self) -> None:
        """Send one request and wait for its answer."""
        self.sent += 1
        try:
            complaint = self._judge.complaint(ask(self._port, self._request))
        except (OSError, BadResponseError) as error:
            complaint = str(error)
        if complaint is not None:
            self.errors += 1
            self.first_error = self.first_error or complaint


def ask(port: int, request: bytes, timeout_s: float = 30.0) -> ResponseReader:
    """The whole answer to `request`; raises OSError or BadResponseError."""
    deadline = time.monotonic() + timeout_s
    reader = ResponseReader()
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(request)
        while time.monotonic() < deadline:
            data = connection.recv(65_536)
            if not data:
                raise BadResponseError("the connection was closed")
            if reader.feed(data):
                return reader
    raise TimeoutError(f"no whole answer within {timeout_s} s")
