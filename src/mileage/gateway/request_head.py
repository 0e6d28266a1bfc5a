"""RequestHead: what the gateway needs of a request's headers, and what it passes on of them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mileage.core.request import Priority
from mileage.gateway.refusals import Refusal

__all__ = ["RequestHead"]

_FORWARDED = frozenset(
    (b"traceparent", b"tracestate", b"x-request-id", b"anthropic-version", b"anthropic-beta")
)
_VARIANTS = frozenset((b"anthropic-version", b"anthropic-beta"))
"""Of these, what makes the answer another one."""
_OURS = frozenset((b"x-mileage-priority", b"x-mileage-merge", b"x-mileage-labels"))
_PRIORITIES: dict[bytes, Priority] = {b"high": "high", b"normal": "normal", b"low": "low"}
_trace_parent = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class RequestHead:
    """The headers, read once. Names are lower case."""

    __slots__ = (
        "_lines",
        "_priority",
        "_trace",
        "_variant",
        "api_key",
        "authorization",
        "host",
        "labels",
        "merge",
        "origin",
    )

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        authorization = api_key = trace = host = origin = priority = merge = None
        labels: bytes | None = None
        lines = variant = b""
        for name, value in headers:
            if name == b"authorization":
                authorization = value
            elif name == b"x-api-key":
                api_key = value
            elif name in _FORWARDED:
                lines += b"%b: %b\r\n" % (name, value)
                if name == b"traceparent":
                    trace = value
                elif name in _VARIANTS:
                    variant += b"%b: %b\r\n" % (name, value)
            elif name in _OURS:
                if name == b"x-mileage-priority":
                    priority = value
                elif name == b"x-mileage-merge":
                    merge = value
                else:
                    labels = value if labels is None else labels + b"," + value
            elif name == b"host":
                host = value
            elif name == b"origin":
                origin = value
        self._lines, self._variant, self._priority, self._trace = lines, variant, priority, trace
        self.authorization: bytes | None = authorization
        self.api_key: bytes | None = api_key
        self.host: bytes | None = host
        self.origin: bytes | None = origin
        self.merge: bytes | None = merge
        self.labels: bytes | None = labels

    def credentials(self) -> bytes:
        """Header lines that hand the client's own key for the engine on, where we ask for none."""
        authorization, api_key = self.authorization, self.api_key
        lines = b"" if authorization is None else b"authorization: %b\r\n" % authorization
        return lines if api_key is None else lines + b"x-api-key: %b\r\n" % api_key

    def priority(self) -> Priority | None:
        """The priority that the client asks for; Refusal (400) for one that there is not."""
        if self._priority is None:
            return None
        priority = _PRIORITIES.get(self._priority.strip().lower())
        if priority is None:
            message = "the header 'x-mileage-priority' must be high, normal or low"
            raise Refusal(400, message, param="x-mileage-priority")
        return priority

    def forwarded(self, id_line: bytes) -> bytes:
        """Header lines for an engine; with `id_line` where the client gave the request no id."""
        lines = self._lines
        return lines if lines and b"x-request-id" in lines else lines + id_line

    def variant(self, priority: Priority | None, credentials: bytes) -> bytes:
        """What of the headers two requests must have in common to share an answer."""
        return b"%b%b%b" % (
            self._variant,
            credentials,
            b"" if priority is None else priority.encode(),
        )

    def trace_id(self) -> str | None:
        """The W3C trace id, where there is a valid one."""
        if self._trace is None:
            return None
        found = _trace_parent.fullmatch(self._trace)
        return found.group(1).decode() if found else None
