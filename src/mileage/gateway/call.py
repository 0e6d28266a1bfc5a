"""Call: one request as a client sent it, and what an engine is sent of it."""

from __future__ import annotations

from mileage.core.request import Request
from mileage.gateway.bodies import Body, upstream_body, with_lora
from mileage.gateway.cache_salt import CacheSalts
from mileage.gateway.target import Target
from mileage.wire.message import HttpRequest

__all__ = ["Call"]

_WITH_USAGE = ("chat", "completions")


class Call:
    """`headers` are header lines for any engine; `credentials` those with the client's own key.

    The credentials go only to an engine for which no key of ours is configured. `answer_head` are
    header lines that every answer to the client begins with, the request's id among them. `key`,
    `adapter` and `labels` are for its record only (RequestTimeline).
    """

    __slots__ = (
        "adapter",
        "answer_head",
        "arrived_at_utc_ns",
        "body",
        "credentials",
        "headers",
        "http",
        "key",
        "labels",
        "request",
        "salts",
        "trace_id",
    )

    def __init__(
        self,
        http: HttpRequest,
        body: Body,
        request: Request,
        *,
        headers: bytes,
        credentials: bytes,
        answer_head: bytes,
        arrived_at_utc_ns: int,
        trace_id: str | None,
    ) -> None:
        self.http = http
        self.body = body
        self.request = request
        self.headers = headers
        self.credentials = credentials
        self.answer_head = answer_head
        self.arrived_at_utc_ns = arrived_at_utc_ns
        self.trace_id = trace_id
        self.key: str | None = None
        self.adapter: str | None = None
        self.labels: str | None = None
        self.salts: CacheSalts | None = None
        """Of the tenant's requests, where it shares nothing that is cached."""

    def upstream_request(self, target: Target, body: bytes | None = None) -> bytes:
        """The whole HTTP request for this replica; `body`: in place of its own."""
        request = self.request
        if body is None:
            ask_usage = request.stream and target.stream_usage and request.endpoint in _WITH_USAGE
            model = request.model
            body = upstream_body(self.http.body, self.body, model=model, ask_usage=ask_usage)
        if target.lora:
            body = with_lora(body, target.lora.get(request.model))
        if self.salts is not None and target.cache_salt:
            body = self.salts.put(body, request.tenant)
        if request.endpoint == "responses":
            body = target.named_body(body, request.id)
        headers = target.named(self.headers, request.id)
        if not target.own_authorization:
            headers += self.credentials
        return target.request(request.endpoint, headers, body)
