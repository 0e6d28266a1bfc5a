"""Exchange: one request on its way from a client to an engine, and its answer on the way back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mileage.core.actions import Reject
from mileage.core.events import Cancelled, Failed, FailureKind, FirstToken
from mileage.core.timeline import Outcome, RequestTimeline
from mileage.gateway.answer_head import (
    JSON_LINES,
    STREAM_LINES,
    forwarded_lines,
    has_length,
    retry_after_lines,
)
from mileage.gateway.call import Call
from mileage.gateway.outcomes import UNAVAILABLE, outcome_of, stream_outcome_of
from mileage.gateway.refusals import (
    Refusal,
    engine_error,
    engine_message,
    error_body,
    error_event,
    rejection,
)
from mileage.gateway.stream import StreamMeter
from mileage.gateway.target import Target
from mileage.gateway.usage import Usage
from mileage.gateway.whole import WholeAnswer
from mileage.wire.server import ServerConnection
from mileage.wire.upstream import BreakKind, Carrier

if TYPE_CHECKING:
    from mileage.gateway.driver import Driver, Then

__all__ = ["Exchange"]


def _nothing(recorded: bool) -> None:
    """There is nobody left to send anything to."""


class Exchange:
    """Lives from a request's arrival to the end of its answer; the sink of the engine's answer."""

    __slots__ = (
        "_attempts",
        "_call",
        "_connection",
        "_dispatched_s",
        "_done",
        "_driver",
        "_failure",
        "_headers",
        "_last_token_s",
        "_meter",
        "_started",
        "_status",
        "_target",
        "_whole",
        "request",
        "upstream",
    )

    def __init__(self, driver: Driver, connection: ServerConnection, call: Call) -> None:
        self._driver = driver
        self._connection = connection
        self._call = call
        self.request = call.request
        self.upstream: Carrier | None = None
        self._target: Target | None = None
        self._attempts = 0
        self._dispatched_s: float | None = None
        self._failure: tuple[FailureKind, str] | None = None
        self._done = False  # its end is recorded, or is about to be
        self._started = False  # a byte of the answer has gone to the client
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._whole = WholeAnswer()
        self._meter: StreamMeter | None = None
        self._last_token_s: float | None = None

    # --- told by the driver -------------------------------------------------------------------

    def dispatch(self, target: Target, now_s: float) -> None:
        """Send the request to a replica; the first time, its intent is recorded before."""
        self._target = target
        if self._attempts:
            self._send(True)
        else:
            call, cut = self._call, self._connection.abort
            self._driver.record_intent(call.request, call.arrived_at_utc_ns, self._send, cut)

    def _send(self, recorded: bool) -> None:
        """Send the request to the replica, now that its intent is on record."""
        target = self._target
        assert target is not None
        if self._done:
            return  # the client left meanwhile
        now_s = time.monotonic()
        if not recorded:
            message = "the request log cannot be written, and is required"
            self._give_up(503, message, "ledger_failed", now_s)
            return
        self._attempts += 1
        self._dispatched_s = now_s - self.request.arrived_s
        self._status = 0
        self._whole = WholeAnswer()
        self._meter = None
        target.pool.send(self._call.upstream_request(target), self, now_s)

    def reject(self, action: Reject, now_s: float) -> None:
        """Answer with a refusal, as the controller decided."""
        self._refuse(rejection(action, self._call.body.model, self._failure), now_s)

    # --- told by the client's connection ------------------------------------------------------

    def client_gone(self) -> None:
        """The client left: closing the connection to the engine stops the generation there."""
        if self._done:
            return
        now_s = time.monotonic()
        if self.upstream is not None:
            self.upstream.abort()
        if self._meter is not None and self._meter.failed:
            # Clients leave at an error event.
            self._finish("failed", 200, now_s, reason="engine_error_event")
        else:
            self._finish("cancelled", self._status or 499, now_s, reason="client_gone")
        self._driver.handle(Cancelled(self.request.id), now_s)

    def cut(self) -> None:
        """Something of ours failed: the client is told by the end of its connection."""
        self._connection.abort()

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
                if name == b"content-type" and value.lower().startswith(b"text/event-stream"):
                    hide = not self._call.body.usage_asked
                    self._meter = StreamMeter(self.request.endpoint, hide_usage=hide)

    def body_received(self, data: bytes, now_s: float) -> None:
        """A part of the answer: passed on where it is a stream, else held until it is whole."""
        meter = self._meter
        if meter is None:
            part = self._whole.take(data)
            if part:
                self._send_on(part)
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
        part = self._whole.take(data)
        if self._status == 200 and not (has_length(self._headers) or self._whole.ends_well()):
            self._attempt_failed("broken", "connection closed inside the answer", now_s)
        elif self._whole.passing:
            end = self._connection.end
            outcome, reason = outcome_of(self._status)
            usage = self._whole.usage()
            self._answered(outcome, self._status, now_s, lambda _: end(part), reason, usage)
        elif self._status in UNAVAILABLE:
            said = engine_message(self._whole.body())
            message = f"the engine answered {self._status}" + (f": {said}" if said else "")
            self._attempt_failed("status", message, now_s)
        else:
            self._answer_whole(self._whole.body(), now_s)

    def answer_broken(self, kind: BreakKind, message: str) -> None:
        """The engine's answer will not come, or not be completed."""
        if self._done:
            return
        self.upstream = None
        self._attempt_failed(kind, message, time.monotonic())

    # --- answers ------------------------------------------------------------------------------

    def _meter_events(self, meter: StreamMeter, data: bytes, now_s: float) -> bytes:
        """Count and time the events that `data` completes; returns those to send on."""
        before = meter.events
        run = meter.take(data, now_s)
        events = meter.events - before
        if events:
            if self._last_token_s is None:
                self._driver.handle(FirstToken(self.request.id), now_s)
            metrics, model = self._driver.metrics, self.request.model
            metrics.inter_token(model, self._last_token_s, now_s, events)
            self._last_token_s = now_s
        return run

    def _send_on(self, run: bytes) -> None:
        connection = self._connection
        if not self._started:
            self._started = True
            connection.release_body()  # no other replica can take over now
            connection.start(self._status, self._head_lines())
        connection.write(run)
        if connection.slow and self.upstream is not None:
            self.upstream.pause()

    def _end_stream(self, meter: StreamMeter, data: bytes, now_s: float) -> None:
        run = self._meter_events(meter, data, now_s)
        if has_length(self._headers) or meter.ended or meter.failed:
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
        outcome, reason = stream_outcome_of(meter.failed)
        self._answered(outcome, 200, now_s, lambda _: connection.end(run), reason, meter.usage)

    def _answer_whole(self, body: bytes, now_s: float) -> None:
        endpoint, status = self.request.endpoint, self._status
        head = self._head_lines()
        usage = None
        if status == 200:
            usage = self._whole.usage()
        elif status >= 400:
            head = self._call.first_lines() + JSON_LINES + retry_after_lines(self._headers)
            target = self._target
            if target is not None and target.has_not(endpoint, status, self.request.model, body):
                status = 501
                body = error_body(501, target.lacks(endpoint), endpoint=endpoint)
            else:
                body = engine_error(status, body, endpoint)
        outcome, reason = outcome_of(status)
        respond = self._connection.respond
        then: Then = lambda _: respond(status, head, body)  # noqa: E731
        self._answered(outcome, status, now_s, then, reason, usage)

    def _answered(
        self,
        outcome: Outcome,
        status: int,
        now_s: float,
        then: Then,
        reason: str | None,
        usage: Usage | None,
    ) -> None:
        """Record the engine's answer, `then` send its last bytes, and tell the controller."""
        self._finish(outcome, status, now_s, reason=reason, usage=usage, then=then)
        # An error's quick answer says nothing about how fast the replica works.
        taught = outcome == "ok" and usage is not None
        request_id = self.request.id
        event = usage.finished(request_id) if usage and taught else Cancelled(request_id)
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
        connection = self._connection
        if self._meter is not None:
            event = error_event(message, "upstream_failed", request.endpoint)
            then: Then = lambda _: connection.end(event)  # noqa: E731
        else:
            then = lambda _: connection.abort()  # noqa: E731 -- JSON cannot say that it broke
        self._finish("failed", self._status, now_s, reason=kind, then=then)
        driver.handle(Failed(request.id, target.name, kind, False), now_s)

    def _give_up(self, status: int, message: str, code: str, now_s: float) -> None:
        """Refuse a request that the controller had dispatched."""
        self._refuse(Refusal(status, message, code=code), now_s)
        self._driver.handle(Cancelled(self.request.id), now_s)

    def _refuse(self, refusal: Refusal, now_s: float) -> None:
        outcome: Outcome = "rejected" if self._failure is None else "failed"
        head = self._call.first_lines() + refusal.head()
        body = refusal.body(self.request.endpoint)
        respond = self._connection.respond
        self._finish(
            outcome,
            refusal.status,
            now_s,
            reason=refusal.code if self._failure is None else self._failure[0],
            then=lambda _: respond(refusal.status, head, body),
        )

    def _head_lines(self) -> bytes:
        lines = self._call.first_lines() + forwarded_lines(self._headers)
        return lines + STREAM_LINES if self._meter is not None else lines

    def _finish(
        self,
        outcome: Outcome,
        status: int,
        now_s: float,
        *,
        reason: str | None = None,
        usage: Usage | None = None,
        then: Then = _nothing,
    ) -> None:
        """Record how the request ended; `then` sends the answer's last bytes."""
        self._done = True
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
                arrived_at_utc_ns=self._call.arrived_at_utc_ns,
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
                trace_id=self._call.trace_id,
                **figures,
            ),
            then,
            self._connection.abort,
        )
