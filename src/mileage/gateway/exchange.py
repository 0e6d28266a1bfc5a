"""Exchange: one request on its way from a client to an engine, and its answer on the way back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mileage.core.actions import RejectReason
from mileage.core.events import Cancelled, Failed, FailureKind, Finished, FirstToken
from mileage.core.request import Request
from mileage.core.timeline import Outcome, RequestTimeline
from mileage.gateway.bodies import Body, upstream_body
from mileage.gateway.refusals import engine_error, engine_message, error_body, error_event
from mileage.gateway.stream import StreamMeter
from mileage.gateway.target import Target
from mileage.gateway.usage import Usage, usage_of_answer
from mileage.wire.message import HttpRequest
from mileage.wire.server import ServerConnection
from mileage.wire.upstream import BreakKind, Carrier

if TYPE_CHECKING:
    from mileage.gateway.driver import Driver

__all__ = ["Exchange"]

_ANSWER_BYTES_MAX = 256 * 1024 * 1024
"""Of an answer that is not streamed: it is held whole, so that its usage is recorded before its
last byte goes out, and so that a replica that dies half-way can be replaced."""

_UNAVAILABLE = frozenset((502, 503, 504))
"""Answers of an engine, or of a proxy before it, that another replica may do better. A 500 is not
among them: engines give it for input that they cannot handle, which would take down one replica's
breaker after the other."""
_JSON = b"content-type: application/json\r\n"
_OURS = frozenset((b"x-request-id", b"x-accel-buffering"))
_FORWARDED = frozenset((b"content-type", b"retry-after", b"openai-processing-ms"))
_FRAMING = frozenset((b"content-length", b"transfer-encoding"))


class Exchange:
    """Lives from a request's arrival to the end of its answer; the sink of the engine's answer."""

    __slots__ = (
        "_answer_head",
        "_arrived_at_utc_ns",
        "_attempts",
        "_body",
        "_connection",
        "_dispatched_s",
        "_driver",
        "_failure",
        "_headers",
        "_held",
        "_held_bytes",
        "_http",
        "_last_token_s",
        "_meter",
        "_started",
        "_status",
        "_target",
        "_trace_id",
        "forwarded",
        "request",
        "upstream",
    )

    def __init__(
        self,
        driver: Driver,
        connection: ServerConnection,
        http: HttpRequest,
        body: Body,
        request: Request,
        *,
        forwarded: bytes,
        answer_head: bytes,
        arrived_at_utc_ns: int,
        trace_id: str | None,
    ) -> None:
        self._driver = driver
        self._connection = connection
        self._http = http
        self._body = body
        self.request = request
        self.forwarded = forwarded
        """Header lines for the engine."""
        self._answer_head = answer_head
        """Header lines that every answer to the client begins with."""
        self._arrived_at_utc_ns = arrived_at_utc_ns
        self._trace_id = trace_id
        self.upstream: Carrier | None = None
        self._target: Target | None = None
        self._attempts = 0
        self._dispatched_s: float | None = None
        self._failure: tuple[FailureKind, str] | None = None
        self._started = False  # a byte of the answer has gone to the client
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._meter: StreamMeter | None = None
        self._last_token_s: float | None = None

    # --- told by the driver -------------------------------------------------------------------

    def dispatch(self, target: Target, now_s: float) -> None:
        """Send the request to a replica; the first time, its intent is recorded before."""
        request, driver = self.request, self._driver
        if request.endpoint in target.unsupported:
            self._give_up(501, f"the engine {target.name} has no {self._path()}", now_s)
            return
        if not self._attempts and not driver.record_intent(request, self._arrived_at_utc_ns):
            self._give_up(503, "the request log cannot be written, and is required", now_s)
            return
        self._attempts += 1
        self._target = target
        self._dispatched_s = now_s - request.arrived_s
        self._status = self._held_bytes = 0
        self._held = []
        self._meter = None
        body = upstream_body(
            self._http.body,
            self._body,
            model=request.model,
            ask_usage=request.stream
            and target.stream_usage
            and request.endpoint in ("chat", "completions"),
        )
        target.pool.send(target.request(request.endpoint, self.forwarded, body), self, now_s)

    def reject(self, reason: RejectReason, retry_after_s: float | None, now_s: float) -> None:
        """Answer with a refusal, as the controller decided."""
        model = self._body.model
        if reason == "model_not_found":
            message = f"the model '{model}' does not exist; GET /v1/models lists those that do"
            self._refuse(404, message, now_s, param="model", code="model_not_found")
        elif reason == "no_replica" or self._failure is None:
            message = f"no replica that serves '{model}' is up"
            self._refuse(503, message, now_s, code=reason, retry_after_s=retry_after_s)
        else:
            kind, message = self._failure
            status = 504 if kind == "timeout" else 502
            self._refuse(status, message, now_s, code=reason, retry_after_s=retry_after_s)

    # --- told by the client's connection ------------------------------------------------------

    def client_gone(self) -> None:
        """The client left: closing the connection to the engine stops the generation there."""
        now_s = time.monotonic()
        if self.upstream is not None:
            self.upstream.abort()
        if self._meter is not None and self._meter.failed:
            # Clients leave at an error event.
            self._finish("failed", 200, now_s, reason="engine_error_event")
        else:
            self._finish("cancelled", self._status or 499, now_s, reason="client_gone")
        self._driver.handle(Cancelled(self.request.id), now_s)

    def client_ready(self) -> None:
        """The client has caught up."""
        if self.upstream is not None:
            self.upstream.resume()

    # --- told by the engine's connection ------------------------------------------------------

    def head_received(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The answer's head; nothing goes out yet, so that another replica can still take over."""
        self._status = status
        self._headers = headers
        if status == 200 and self.request.stream:
            for name, value in headers:
                if name == b"content-type" and value.startswith(b"text/event-stream"):
                    hide = not self._body.usage_asked
                    self._meter = StreamMeter(self.request.endpoint, hide_usage=hide)

    def body_received(self, data: bytes, now_s: float) -> None:
        """A part of the answer: passed on where it is a stream, else held until it is whole."""
        meter = self._meter
        if meter is None:
            self._held.append(data)
            self._held_bytes += len(data)
            if self._held_bytes > _ANSWER_BYTES_MAX:
                if self.upstream is not None:
                    self.upstream.abort()
                self.answer_broken("broken", f"an answer above {_ANSWER_BYTES_MAX} bytes")
            return
        run = self._meter_events(meter, data, now_s)
        if meter.ended:
            # Clients leave at the last event: the record is made before that goes out.
            if self.upstream is not None:
                self.upstream.release()
                self.upstream = None
            self._complete(meter, run, now_s)
        elif run:
            self._send_on(run)

    def answer_ended(self, data: bytes, now_s: float) -> None:
        """The engine's answer is complete."""
        self.upstream = None
        if self._meter is not None:
            self._end_stream(self._meter, data, now_s)
            return
        if self._held:
            self._held.append(data)
            data = b"".join(self._held)
            self._held = []
        if self._status in _UNAVAILABLE:
            said = engine_message(data)
            message = f"the engine answered {self._status}" + (f": {said}" if said else "")
            self._attempt_failed("status", message, now_s)
            return
        self._answer_whole(data, now_s)

    def answer_broken(self, kind: BreakKind, message: str) -> None:
        """The engine's answer will not come, or not be completed."""
        self.upstream = None
        self._attempt_failed(kind, message, time.monotonic())

    # --- answers ------------------------------------------------------------------------------

    def _meter_events(self, meter: StreamMeter, data: bytes, now_s: float) -> bytes:
        """Count and time the events that `data` completes; returns those to send on."""
        before = meter.events
        run = meter.take(data, now_s)
        events = meter.events - before
        if events:
            metrics, model = self._driver.metrics, self.request.model
            if self._last_token_s is not None:
                metrics.inter_token(model, now_s - self._last_token_s, events)
            else:
                self._driver.handle(FirstToken(self.request.id), now_s)
                if events > 1:
                    metrics.inter_token(model, 0.0, events - 1)
            self._last_token_s = now_s
        return run

    def _send_on(self, run: bytes) -> None:
        connection = self._connection
        if not self._started:
            self._started = True
            connection.start(200, self._head_lines())
        connection.write(run)
        if connection.slow and self.upstream is not None:
            self.upstream.pause()

    def _end_stream(self, meter: StreamMeter, data: bytes, now_s: float) -> None:
        run = self._meter_events(meter, data, now_s)
        framed = any(name in _FRAMING for name, _ in self._headers)
        if framed or meter.ended or meter.failed:
            self._complete(meter, run + meter.rest(), now_s)
            return
        # The end of the connection is all that tells the end: the engine may have died.
        if run:
            self._send_on(run)
        self._attempt_failed("broken", "connection closed inside the stream", now_s)

    def _complete(self, meter: StreamMeter, run: bytes, now_s: float) -> None:
        connection = self._connection
        if not self._started:
            connection.start(200, self._head_lines())
        outcome: Outcome = "failed" if meter.failed else "ok"
        reason = "engine_error_event" if meter.failed else None
        self._finish(outcome, 200, now_s, reason=reason, usage=meter.usage)
        connection.end(run)
        self._driver.handle(_finished(self.request.id, meter.usage), now_s)

    def _answer_whole(self, body: bytes, now_s: float) -> None:
        endpoint, status = self.request.endpoint, self._status
        head = self._head_lines()
        usage = None
        if status == 200:
            usage = usage_of_answer(body)
        elif status >= 400:
            head = _JSON + self._first_lines()
            if status in (404, 405) and self._lacks_endpoint(body):
                status = 501
                body = error_body(501, f"this engine has no {self._path()}", endpoint=endpoint)
            else:
                body = engine_error(status, body, endpoint)
            for name, value in self._headers:
                if name == b"retry-after":
                    head += b"retry-after: %b\r\n" % value
        outcome: Outcome = "ok" if status < 500 else "failed"
        self._finish(
            outcome, status, now_s, reason=None if outcome == "ok" else "engine_error", usage=usage
        )
        self._connection.respond(status, head, body)
        # An error's quick answer says nothing about how fast the replica works.
        request_id = self.request.id
        event = _finished(request_id, usage) if usage is not None else Cancelled(request_id)
        self._driver.handle(event, now_s)

    def _attempt_failed(self, kind: FailureKind, message: str, now_s: float) -> None:
        target = self._target
        assert target is not None
        driver, request = self._driver, self.request
        driver.metrics.upstream_failures.add((target.name, kind))
        message = f"{target.name}: {message}"
        if not self._started:
            self._failure = (kind, message)
            driver.handle(Failed(request.id, target.name, kind, True), now_s)
            return
        self._finish("failed", 200, now_s, reason=f"{kind}: {message}")
        connection = self._connection
        connection.end(error_event(message, "upstream_failed", request.endpoint))
        driver.handle(Failed(request.id, target.name, kind, False), now_s)

    def _give_up(self, status: int, message: str, now_s: float) -> None:
        """Refuse a request that the controller had dispatched."""
        self._refuse(status, message, now_s)
        self._driver.handle(Cancelled(self.request.id), now_s)

    def _refuse(
        self,
        status: int,
        message: str,
        now_s: float,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        outcome: Outcome = "rejected" if self._failure is None else "failed"
        self._finish(outcome, status, now_s, reason=message if outcome == "failed" else code)
        head = _JSON + self._first_lines()
        if retry_after_s is not None:
            head += b"retry-after: %d\r\n" % max(1, -int(-retry_after_s // 1))
        endpoint = self.request.endpoint
        body = error_body(status, message, param=param, code=code, endpoint=endpoint)
        self._connection.respond(status, head, body)

    def _head_lines(self) -> bytes:
        """The engine's header lines that concern the client, and the request's id."""
        lines = [self._first_lines()]
        for name, value in self._headers:
            if name in _FORWARDED or (name.startswith(b"x-") and name not in _OURS):
                lines.append(b"%b: %b\r\n" % (name, value))
        if self._meter is not None:
            lines.append(b"cache-control: no-cache\r\nx-accel-buffering: no\r\n")
        return b"".join(lines)

    def _first_lines(self) -> bytes:
        return b"%bx-request-id: req-%x\r\n" % (self._answer_head, self.request.id)

    def _lacks_endpoint(self, body: bytes) -> bool:
        """A 404 that is about the path, not the model: the engine does not have the endpoint."""
        target = self._target
        unsure = target is not None and self.request.endpoint in target.unsure
        return unsure and self.request.model.encode() not in body

    def _path(self) -> str:
        path = self._http.target.partition(b"?")[0]
        return path.decode("ascii", "replace")

    def _finish(
        self,
        outcome: Outcome,
        status: int,
        now_s: float,
        *,
        reason: str | None = None,
        usage: Usage | None = None,
    ) -> None:
        """Record how the request ended; called before the answer's last byte."""
        request, meter = self.request, self._meter
        arrived_s = request.arrived_s
        if usage is None:
            usage = meter.usage if meter is not None else Usage()
        figures = meter.figures(arrived_s) if meter is not None else {}
        target = self._target
        self._driver.finish(
            RequestTimeline(
                id=request.id,
                tenant=request.tenant,
                model=request.model,
                endpoint=request.endpoint,
                stream=request.stream,
                arrived_at_utc_ns=self._arrived_at_utc_ns,
                outcome=outcome,
                status=status,
                replica=target.name if target is not None else None,
                attempts=self._attempts,
                reason=reason,
                dispatched_s=self._dispatched_s,
                finished_s=now_s - arrived_s,
                prompt_tokens=usage.prompt_tokens,
                cached_tokens=usage.cached_tokens,
                output_tokens=usage.output_tokens,
                reasoning_tokens=usage.reasoning_tokens,
                trace_id=self._trace_id,
                **figures,
            )
        )


def _finished(request_id: int, usage: Usage) -> Finished:
    return Finished(request_id, usage.prompt_tokens, usage.cached_tokens, usage.output_tokens)
