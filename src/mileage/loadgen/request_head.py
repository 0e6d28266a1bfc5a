"""RequestHeads: the bytes of a call's request, with the heads made once for each kind of call."""

from __future__ import annotations

import re

from mileage import __version__
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.target import Target

__all__ = ["RequestHeads", "UnsendableError"]

_HEADS_MAX = 4096
_PATH = re.compile(rb"/[\x21-\x7e]*")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")


class UnsendableError(Exception):
    """A call's path or one of its headers would make no well-formed request."""


class RequestHeads:
    """Makes requests to one target; `prefix` and `authority` are as its pool tells them."""

    def __init__(self, target: Target, *, prefix: bytes, authority: bytes) -> None:
        self._prefix = prefix
        self._lines = [b"host: " + authority, b"content-type: application/json"]
        self._lines.append(f"user-agent: mileage/{__version__}".encode())
        if (value := target.authorization_value) is not None:
            self._lines.append(b"authorization: " + value.encode("latin-1"))
        self._heads: dict[tuple[bytes, tuple[tuple[bytes, bytes], ...], bool], bytes] = {}

    def request(self, call: PlannedCall) -> bytes:
        """The whole request. Raises UnsendableError."""
        key = (call.path, call.headers, call.stream)
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) >= _HEADS_MAX:
                self._heads.clear()  # headers that differ from call to call, such as an id
            head = self._heads[key] = self._head(call)
        return b"%b%d\r\n\r\n%b" % (head, len(call.body), call.body)

    def _head(self, call: PlannedCall) -> bytes:
        if not _PATH.fullmatch(call.path):
            raise UnsendableError(f"a path that cannot be sent: {call.path[:60]!r}")
        given = {name.lower() for name, _ in call.headers}
        lines = [line for line in self._lines if line.partition(b":")[0] not in given]
        if b"accept" not in given:
            accept = b"text/event-stream" if call.stream else b"application/json"
            lines.append(b"accept: " + accept)
        for name, value in call.headers:
            if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
                raise UnsendableError(f"a header that cannot be sent: {name[:60]!r}")
            lines.append(name + b": " + value)
        first = b"POST " + self._prefix + call.path + b" HTTP/1.1"
        return b"\r\n".join([first, *lines, b"content-length: "])
