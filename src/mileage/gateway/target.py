"""Target: one replica as the data plane calls it: its connections and its request heads."""

from __future__ import annotations

from collections.abc import Iterable

from mileage.core.request import Endpoint, Request
from mileage.core.request_name import request_name
from mileage.gateway.answer_head import JSON_LINES, forwarded_lines, retry_after_lines
from mileage.gateway.config import Upstream
from mileage.gateway.refusals import engine_error, error_body
from mileage.wire.pool import UpstreamPool

__all__ = ["PATHS", "Target"]

PATHS: dict[Endpoint, bytes] = {
    "chat": b"/v1/chat/completions",
    "completions": b"/v1/completions",
    "embeddings": b"/v1/embeddings",
    "responses": b"/v1/responses",
    "messages": b"/v1/messages",
}


class Target:
    """Built once per replica; `request` only joins what differs between requests."""

    __slots__ = (
        "_heads",
        "_tag",
        "cache_salt",
        "lora",
        "name",
        "own_authorization",
        "pool",
        "stream_usage",
        "unsure",
        "upstream",
    )

    def __init__(self, upstream: Upstream) -> None:
        self.name, self.upstream = upstream.name, upstream
        self.stream_usage = upstream.stream_usage
        self.unsure = frozenset(upstream.unsure)
        self.own_authorization = upstream.authorization is not None
        self.lora = {model: field.encode() for model, field in upstream.lora.items()}
        """By model: the field `lora` of its requests."""
        self._tag = upstream.request_tag
        self.cache_salt = upstream.cache_salt
        self.pool = UpstreamPool(
            upstream.url,
            connections_max=upstream.connections_max,
            connect_timeout_s=upstream.connect_timeout_s,
            response_timeout_s=upstream.response_timeout_s,
        )
        authorization = (
            b"authorization: %b\r\n" % upstream.authorization.encode()
            if upstream.authorization is not None
            else b""
        )
        self._heads = {
            endpoint: b"POST %b%b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\n%b"
            % (self.pool.prefix, path, self.pool.authority, authorization)
            for endpoint, path in PATHS.items()
        }

    def named(self, headers: bytes, request_id: int) -> bytes:
        """The header lines with the name by which this engine is to know the request."""
        if self._tag is None:
            return headers
        ours = b"x-request-id: req-%x\r\n" % request_id
        if headers.endswith(ours):  # the client has no name for it
            return b"%b.%b\r\n" % (headers[:-2], self._tag.encode())
        lines = headers.splitlines(keepends=True)
        names = [line[14:].strip() for line in lines if line.startswith(b"x-request-id: ")]
        name = request_name(request_id, self._tag, *names[:1])
        others = b"".join(line for line in lines if not line.startswith(b"x-request-id: "))
        return b"%bx-request-id: %b\r\n" % (others, name)

    def named_body(self, body: bytes, request_id: int) -> bytes:
        """The same for a call to /v1/responses, where the name is a field of the body; one that the
        client gave it stays."""
        if self._tag is None or b'"request_id"' in body:
            return body
        name = request_name(request_id, self._tag)
        return b'{"request_id":"resp_%b",%b' % (name, body[body.index(b"{") + 1 :])

    def request(self, endpoint: Endpoint, headers: bytes, body: bytes) -> bytes:
        """The whole HTTP request; `headers` are further header lines, each with its CRLF.

        An engine with a key of its own gets that one alone, and never sees the client's.
        """
        if self.own_authorization and b"authorization: " in headers:
            lines = headers.splitlines(keepends=True)
            headers = b"".join(line for line in lines if not line.startswith(b"authorization: "))
        return b"%b%bcontent-length: %d\r\n\r\n%b" % (
            self._heads[endpoint],
            headers,
            len(body),
            body,
        )

    def answer(
        self, request: Request, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes
    ) -> tuple[int, bytes, bytes]:
        """The engine's whole answer as the client gets it: status, header lines and body.

        An error is put into the form of the client's API; what says that the engine does not have
        the endpoint becomes a 501.
        """
        if status < 400:
            return status, forwarded_lines(headers), body
        endpoint = request.endpoint
        if self._has_not(endpoint, status, request.model, body):
            status = 501
            message = f"the engine {self.name} has no {PATHS[endpoint].decode()}"
            body = error_body(501, message, endpoint=endpoint)
        else:
            body = engine_error(status, body, endpoint)
        return status, JSON_LINES + retry_after_lines(headers), body

    def _has_not(self, endpoint: Endpoint, status: int, model: str, body: bytes) -> bool:
        """The engine's answer says that it has no such path: a 404 that is not about the model."""
        return status in (404, 405) and endpoint in self.unsure and model.encode() not in body
