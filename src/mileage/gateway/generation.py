"""Generation: what an engine is asked for one request, or for several that share it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from mileage.core.actions import JoinKind, Reject
from mileage.core.events import Cancelled, Failed, FailureKind, FirstToken
from mileage.core.timeline import Outcome
from mileage.gateway.answer_head import STREAM_LINES, forwarded_lines, has_length, is_event_stream
from mileage.gateway.audience import Audience
from mileage.gateway.batch_call import BatchCall
from mileage.gateway.exchange import Exchange
from mileage.gateway.outcomes import failure_of, outcome_of, stream_outcome_of
from mileage.gateway.refusals import Refusal, rejection
from mileage.gateway.stream import StreamMeter, seen
from mileage.gateway.target import Target
from mileage.gateway.usage import Usage
from mileage.gateway.whole import WholeAnswer
from mileage.measure.metrics import HistogramSeries
from mileage.wire.upstream import BreakKind, Carrier

if TYPE_CHECKING:
    from mileage.gateway.driver import Driver, Then

__all__ = ["Generation"]

_TOO_SLOW = "this client reads more slowly than the others that share the answer"


def _nothing(recorded: bool) -> None:
    """The last one of them goes on for all."""


class Generation:
    """Lives from the dispatch of a request, or the first that joins it, to the end of its answer;
    the sink of the engine's answer. The controller knows it by its leader's id."""

    __slots__ = (
        "_batch",
        "_call",
        "_dispatched",
        "_done",
        "_driver",
        "_gaps",
        "_headers",
        "_last_token_s",
        "_status",
        "_whole",
        "attempts",
        "audience",
        "failure",
        "id",
        "meter",
        "sent_s",
        "target",
        "upstream",
    )

    _whole: WholeAnswer
    _gaps: HistogramSeries  # between tokens, of all streams of the model

    def __init__(self, driver: Driver, leader: Exchange) -> None:
        leader.generation = self
        self._driver = driver
        self._call = leader.call
        self._batch: BatchCall | None = None
        self._dispatched = False
        self._done = False  # its end is recorded, or is about to be
        self.failure: tuple[FailureKind, str] | None = None
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._last_token_s: float | None = None
        self.id = leader.request.id
        self.audience = Audience(driver, leader)
        self.attempts = 0
        self.upstream: Carrier | None = None
        self.target: Target | None = None
        self.sent_s: float | None = None
        self.meter: StreamMeter | None = None

    # --- told by the driver -------------------------------------------------------------------

    def join(self, exchange: Exchange, kind: JoinKind, now_s: float) -> None:
        """Let another request share the answer, or be sent in one call with the leader's."""
        exchange.generation = self
        if kind == "batch":
            assert not self._dispatched, "a batch that is sent takes no more requests"
            if self._batch is None:
                self._batch = BatchCall(self._driver, self, self._call)
            self._batch.add(exchange)
        else:
            exchange.release_body()
        meter, running = self.meter, self._dispatched
        if running:
            exchange.hold_back()
        self.audience.join(exchange, meter.events if meter is not None else 0, now_s)
        if running:
            exchange.record_intent(exchange.go_on)

    def dispatch(self, target: Target, now_s: float) -> None:
        """Send the request to a replica; the first time, the intents are recorded before."""
        self.target = target
        if self.attempts:
            self._send(True)
            return
        self._dispatched = True
        members = self.audience.members
        for member in members[:-1]:
            member.record_intent(_nothing)
        members[-1].record_intent(self._send, self.cut)

    def _send(self, recorded: bool) -> None:
        """Send the request to the replica, now that all intents are on record."""
        target = self.target
        assert target is not None
        if self._done:
            return  # all clients left meanwhile
        now_s = time.monotonic()
        if not recorded:
            message = "the request log cannot be written, and is required"
            self._refuse(lambda _: Refusal(503, message, code="ledger_failed"), now_s)
            self._tell_gone(now_s)
            return
        self.attempts += 1
        self.sent_s = now_s
        self._status = 0
        self.meter = None
        batch = self._batch
        if batch is None:
            request = self._call.upstream_request(target)
            self._whole = WholeAnswer()
        else:
            request = batch.upstream_request(target)
            self._whole = batch.whole()
        target.pool.send(request, self, now_s)

    def reject(self, action: Reject, now_s: float) -> None:
        """Answer with a refusal, as the controller decided."""
        self._refuse(lambda m: rejection(action, m.call.body.model, self.failure), now_s)

    # --- told by the clients' sides -----------------------------------------------------------

    def left(self, exchange: Exchange, now_s: float) -> None:
        """A client left: what nobody waits for any more is stopped at the engine."""
        if self.meter is not None and self.meter.failed:
            # Clients leave at an error event.
            self._out(exchange, "failed", 200, "engine_error_event", now_s)
        else:
            self._out(exchange, "cancelled", self._status or 499, "client_gone", now_s)

    def drop(self, exchange: Exchange, refusal: Refusal, now_s: float) -> None:
        """Refuse one of the clients, which has been sent nothing yet."""
        then = exchange.refusing(refusal)
        self._out(exchange, "rejected", refusal.status, refusal.code or "refused", now_s, then)

    def balance(self) -> None:
        """Let the engine wait, or go on, as the clients can take more."""
        if self.upstream is None:
            return
        if self.audience.all_slow():
            self.upstream.pause()
        else:
            self.upstream.resume()

    def _out(
        self,
        exchange: Exchange,
        outcome: Outcome,
        status: int,
        reason: str,
        now_s: float,
        then: Then | None = None,
    ) -> None:
        """One client is out; with the last one the generation ends."""
        driver, audience, batch = self._driver, self.audience, self._batch
        last = len(audience.members) == 1
        if last and (batch is None or not batch.separated):
            self.end()
            if self.upstream is not None:
                self.upstream.abort()
        elif exchange.request.id == self.id:
            driver.orphans[self.id] = self
        # The controller first: what the request has cost is on its record.
        try:
            driver.handle(Cancelled(exchange.request.id, seen(self.meter)), now_s)
        finally:
            audience.leave(exchange, outcome, status, now_s, reason=reason, then=then)
        if (batch is None or not batch.left(exchange)) and not last:
            self.balance()

    def cut(self) -> None:
        """Something of ours failed: the clients are told by the end of their connections."""
        for member in tuple(self.audience.members):
            member.abort()

    # --- told by the engine's connection ------------------------------------------------------

    def head_received(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The answer's head; nothing goes out yet, so that another replica can still take over."""
        self._status = status
        self._headers = headers
        request = self._call.request
        if status == 200 and request.stream and is_event_stream(headers):
            hide = not self._call.body.usage_asked
            self.meter = StreamMeter(request.endpoint, hide_usage=hide)
            self._gaps = self._driver.metrics.latency.itl.series((request.model,))

    def body_received(self, data: bytes, now_s: float) -> None:
        """A part of the answer: passed on where it is a stream, else held until it is whole."""
        meter = self.meter
        if meter is None:
            part = self._whole.take(data)
            if part and self._batch is not None and self._batch.several:
                if self.upstream is not None:
                    self.upstream.abort()
                self._send_separately(self._batch)
            elif part:
                self._send_on(part, now_s)
            return
        run = self._meter_events(meter, data, now_s)
        if meter.ended:
            # Clients leave at the last event: the record is made before that goes out.
            if self.upstream is not None:
                self.upstream.release()
                self.upstream = None
            self._complete(meter, run, now_s)
        elif run:
            self._send_on(run, now_s)

    def answer_ended(self, data: bytes, now_s: float) -> None:
        """The engine's answer is complete."""
        self.upstream = None
        if self.meter is not None:
            self._end_stream(self.meter, data, now_s)
            return
        whole, status, loads = self._whole, self._status, self._driver.controller.loads
        batch = self._batch if self._batch is not None and self._batch.several else None
        part = whole.take(data)
        if status == 200 and not (has_length(self._headers) or whole.ends_well()):
            self._attempt_failed("broken", "connection closed inside the answer", now_s)
        elif whole.passing and batch is None:
            (outcome, reason), usage = outcome_of(status), whole.usage()
            self._answered(outcome, status, now_s, lambda m: partial(m.end, part), reason, usage)
        elif failure := failure_of(status, whole, loads, self.target, self._call.request):
            self._attempt_failed(*failure, now_s)
        elif batch is not None and not batch.is_refusal_of_all(status):
            if not batch.answer(status, self._headers, whole, now_s):
                self._send_separately(batch)
        else:
            self._answer_whole(now_s)

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
            before_s, self._last_token_s = self._last_token_s, now_s
            if before_s is None:
                self._driver.handle(FirstToken(self.id), now_s)
            else:
                self._gaps.observe(now_s - before_s)
            if events > 1:
                self._gaps.observe(0.0, events - 1)
            self.audience.tokens_came(events, now_s)
        return run

    def _send_on(self, run: bytes, now_s: float) -> None:
        audience = self.audience
        if not audience.started:  # no other replica can take over now
            audience.start(self._status, self._head_lines())
        if audience.write(run):
            if self.upstream is not None:
                self.upstream.pause()
        elif len(audience.members) > 1:
            for member in audience.too_slow():
                then = member.broken(_TOO_SLOW, stream=self.meter is not None)
                self._out(member, "cancelled", self._status, "slow_client", now_s, then)

    def _end_stream(self, meter: StreamMeter, data: bytes, now_s: float) -> None:
        run = self._meter_events(meter, data, now_s)
        if has_length(self._headers) or meter.ended or meter.failed:
            self._complete(meter, run + meter.rest(), now_s)
            return
        # The end of the connection is all that tells the end: the engine may have died.
        if run:
            self._send_on(run, now_s)
        self._attempt_failed("broken", "connection closed inside the stream", now_s)

    def _complete(self, meter: StreamMeter, run: bytes, now_s: float) -> None:
        if not self.audience.started:
            self.audience.start(200, self._head_lines())
        outcome, reason = stream_outcome_of(meter.failed)
        self._answered(outcome, 200, now_s, lambda m: partial(m.end, run), reason, meter.usage)

    def _answer_whole(self, now_s: float) -> None:
        target, call, status, whole = self.target, self._call, self._status, self._whole
        assert target is not None
        usage = whole.usage() if status == 200 else None
        status, lines, body = target.answer(call.request, status, self._headers, whole.body())
        outcome, reason = outcome_of(status)
        self._answered(
            outcome, status, now_s, lambda m: partial(m.respond, status, lines, body), reason, usage
        )

    def _send_separately(self, batch: BatchCall) -> None:
        assert self.target is not None
        self.upstream = None
        self.attempts += 1
        batch.send_separately(self.target)

    def _answered(
        self,
        outcome: Outcome,
        status: int,
        now_s: float,
        end: Callable[[Exchange], Then],
        reason: str | None,
        usage: Usage | None,
    ) -> None:
        """Tell the controller of the engine's answer, record it, and `end` each client's."""
        self.end()
        try:
            # An error's quick answer says nothing about how fast the replica works.
            self.tell(usage if outcome == "ok" else None, now_s)
        finally:
            self.audience.finish(outcome, status, now_s, end, reason=reason, usage=usage)

    def _attempt_failed(self, kind: FailureKind, message: str, now_s: float) -> None:
        target, driver, audience = self.target, self._driver, self.audience
        assert target is not None
        driver.metrics.upstream_failures.add((target.name, kind))
        message = f"{target.name}: {message}"
        if not audience.started:
            self.failure = (kind, message)
            for member in tuple(audience.members):
                if member.turned_away is not None:
                    self.drop(member, member.turned_away, now_s)
            if not self._done:
                driver.handle(Failed(self.id, target.name, kind, True), now_s)
            return
        self.end()
        broken = partial(Exchange.broken, message=message, stream=self.meter is not None)
        try:
            driver.handle(Failed(self.id, target.name, kind, False), now_s)
        finally:
            audience.finish("failed", self._status, now_s, broken, reason=kind)

    def _refuse(self, refusal_of: Callable[[Exchange], Refusal], now_s: float) -> None:
        self.end()
        failure, refusal = self.failure, refusal_of(self.audience.members[0])
        self.audience.finish(
            "rejected" if failure is None else "failed",
            refusal.status,
            now_s,
            lambda member: member.refusing(refusal_of(member)),
            reason=refusal.code if failure is None else failure[0],
        )

    # --- its end ------------------------------------------------------------------------------

    def end(self) -> None:
        """Nothing more becomes of it: it can be forgotten."""
        self._done = True
        driver = self._driver
        self.audience.forget()
        if driver.orphans or driver.full:
            driver.forget(self)

    def tell(self, usage: Usage | None, now_s: float) -> None:
        """Tell the controller that the answer is complete; without usage, that nothing runs."""
        if usage is None:
            self._tell_gone(now_s)
        elif self.meter is None:
            self._driver.handle(usage.finished(self.id), now_s)
        else:
            times = self.meter.summary()
            finished = usage.finished(self.id, times.itl_p99_s, times.itl_mean_s)
            self._driver.handle(finished, now_s)

    def _tell_gone(self, now_s: float) -> None:
        for member in self.audience.members:
            self._driver.handle(Cancelled(member.request.id, seen(self.meter)), now_s)

    def _head_lines(self) -> bytes:
        ours = STREAM_LINES if self.meter is not None else b""
        return forwarded_lines(self._headers) + ours
