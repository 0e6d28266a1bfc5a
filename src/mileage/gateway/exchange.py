"""Exchange: one client's request, from its arrival to the end of its answer."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from mileage.core.events import Cancelled
from mileage.core.timeline import Outcome, RequestTimeline
from mileage.gateway.call import Call
from mileage.gateway.rate_lines import rate_lines
from mileage.gateway.refusals import Refusal, error_event
from mileage.gateway.shared import ALONE, Shared
from mileage.gateway.stream import NO_TOKENS
from mileage.gateway.usage import Usage
from mileage.measure.timeline import TokenClock
from mileage.wire.server import ServerConnection

if TYPE_CHECKING:
    from mileage.control.experiment import ArmSeen
    from mileage.gateway.counting_pool import Cancel
    from mileage.gateway.driver import Cut, Driver, Then
    from mileage.gateway.generation import Generation

__all__ = ["Exchange"]

_UNUSED = Usage()


def _nothing(recorded: bool) -> None:
    """There is nobody left to send anything to."""


class Exchange:
    """The client's side: its connection, its own record, and what it has yet to be sent.

    The engine's side is its Generation's, which it may share with others. A client that does not
    keep up is sent no more until it does; what comes meanwhile is kept for it, by reference, and
    the generation sees to it that this stays bounded.
    """

    __slots__ = (
        "_behind",
        "_clock",
        "_connection",
        "_driver",
        "_recorded",
        "arm",
        "behind_bytes",
        "call",
        "done",
        "generation",
        "part",
        "request",
        "turned_away",
        "uncount",
    )

    def __init__(self, driver: Driver, connection: ServerConnection, call: Call) -> None:
        self._driver = driver
        self._connection = connection
        self._behind: list[bytes] | None = None
        self._clock: TokenClock | None = None  # of one that joined after the first token
        self._recorded = True
        self.arm: ArmSeen | None = None
        """Of the experiment that runs, if it is in one."""
        self.behind_bytes = 0
        """Of the answer, kept back since the client was slow."""
        self.call = call
        self.request = call.request
        self.generation: Generation | None = None
        """While the request is on its way, or shares one that waits or is."""
        self.part = 0
        """Which part of its generation's batch is its own."""
        self.done = False
        """Its end is recorded, or is about to be."""
        self.turned_away: Refusal | None = None
        """What it is told where the attempt that runs fails: it is not to be tried again."""
        self.uncount: Cancel | None = None
        """While its prompt is being counted: how that is cancelled."""

    # --- told by the client's connection ------------------------------------------------------

    def client_gone(self) -> None:
        """The client left; a generation ends when all of its clients have."""
        if self.done:
            return
        if self.uncount is not None:
            self.uncount()
            self.uncount = None
        now_s = time.monotonic()
        if self.generation is not None:
            self.generation.left(self, now_s)
            return
        self.finish("cancelled", 499, now_s, reason="client_gone")
        self._driver.handle(Cancelled(self.request.id), now_s)

    def turn_away(self, refusal: Refusal) -> None:
        """Refuse what waits, be it again; what is with an engine gets that answer or this one."""
        generation = self.generation
        if self.done:
            return
        if generation is not None and generation.upstream is not None:
            self.turned_away = refusal
            return
        if self.uncount is not None:
            self.uncount()
            self.uncount = None
        now_s = time.monotonic()
        if generation is not None:
            generation.drop(self, refusal, now_s)
            return
        self.refuse(refusal, now_s)
        self._driver.handle(Cancelled(self.request.id), now_s)

    def client_ready(self) -> None:
        """The client has caught up."""
        self._catch_up()
        if self.generation is not None:
            self.generation.balance()

    # --- joining ------------------------------------------------------------------------------

    def release_body(self) -> None:
        """The request's body is not needed any more."""
        self._connection.release_body()

    def record_intent(self, then: Then, cut: Cut | None = None) -> None:
        """Record that an engine is about to be asked, and `then` do so; `cut` it if that fails."""
        call = self.call
        self._driver.record_intent(call.request, call.arrived_at_utc_ns, then, cut or self.abort)

    def counted(self, prompt_tokens: int) -> None:
        """Its prompt has so many tokens, by its model's tokenizer."""
        request = msgspec.structs.replace(
            self.request, prompt_tokens_estimate=prompt_tokens, prompt_counted=True
        )
        self.request = self.call.request = request

    def hold_back(self) -> None:
        """It joins what is dispatched already: send it nothing before its intent is on record."""
        self._recorded = False
        self._behind = []

    def join_late(self, events: int, now_s: float) -> None:
        """Token events that had come before it joined come to it now."""
        self._clock = TokenClock()
        self._clock.add(now_s, events)

    def tokens_came(self, events: int, now_s: float) -> None:
        """Count token events on the clock of its own."""
        if self._clock is not None:
            self._clock.add(now_s, events)

    def go_on(self, recorded: bool) -> None:
        """Its intent is on record, or could not be recorded: send what was held back, or refuse."""
        self._recorded = True
        if self.done:
            return
        if recorded:
            self._catch_up()
            return
        now_s = time.monotonic()
        assert self.generation is not None
        message = "the request log cannot be written, and is required"
        self.generation.drop(self, Refusal(503, message, code="ledger_failed"), now_s)

    # --- its answer ---------------------------------------------------------------------------

    @property
    def slow(self) -> bool:
        """The client does not keep up."""
        return self._connection.slow

    def begin(self, status: int, lines: bytes) -> None:
        """Begin an answer of unknown length; its head goes out with the first part."""
        connection = self._connection
        connection.release_body()
        connection.start(status, self._first_lines() + lines)

    def write(self, run: bytes) -> bool:
        """Send a part of the answer, or keep it until the client is ready. True: it is slow."""
        connection = self._connection
        if self._behind is None:
            connection.write(run)
            if connection.slow:
                self._behind = []
        else:
            self._behind.append(run)
            self.behind_bytes += len(run)
        return connection.slow

    def end(self, run: bytes, recorded: bool = True) -> None:
        """Send the last part of the answer, after all that was kept back."""
        if self._behind:
            run = b"".join((*self._behind, run))
        self._behind = None
        self._connection.end(run)

    def respond(self, status: int, lines: bytes, body: bytes, recorded: bool = True) -> None:
        """Answer whole."""
        self._connection.respond(status, self._first_lines() + lines, body)

    def _first_lines(self) -> bytes:
        """What every answer's head begins with: the request's id, how its tenant's rates stand."""
        rates = self._driver.controller.intake.rates(self.request.tenant, time.monotonic())
        return self.call.answer_head + rate_lines(rates)

    def abort(self, recorded: bool = True) -> None:
        """Cut the connection: the answer cannot be completed, and cannot say so."""
        self._connection.abort()

    def refusing(self, refusal: Refusal) -> Then:
        """How the request is answered with a refusal."""
        body = refusal.body(self.request.endpoint)
        return partial(self.respond, refusal.status, refusal.head(), body)

    def refuse(self, refusal: Refusal, now_s: float) -> None:
        """Answer with a refusal what no engine was asked for."""
        then = self.refusing(refusal)
        self.finish("rejected", refusal.status, now_s, reason=refusal.code, then=then)

    def broken(self, message: str, *, stream: bool) -> Then:
        """How an answer ends that has begun and cannot be completed: by an event that says why."""
        if stream:
            return partial(self.end, error_event(message, "upstream_failed", self.request.endpoint))
        return self.abort  # JSON cannot say that it broke

    def _catch_up(self) -> None:
        """Send what was kept back."""
        behind = self._behind
        if behind is None or not self._recorded or self._connection.slow:
            return
        self._behind = None
        self.behind_bytes = 0
        if behind:
            self.write(b"".join(behind))

    # --- its record ---------------------------------------------------------------------------

    def _sent(
        self, generation: Generation
    ) -> tuple[str | None, float | None, int | None, int | None]:
        """Where it was sent, after how many seconds, and what that cost: GPU-ns and nano-USD."""
        replica = None if generation.target is None else generation.target.name
        if generation.sent_s is None:
            return replica, None, None, None
        dispatched_s = max(0.0, generation.sent_s - self.request.arrived_s)
        spend = self._driver.controller.intake.take_spend(self.request.id)
        if spend is None:
            return replica, dispatched_s, None, None
        return replica, dispatched_s, spend.gpu_ns, spend.nano_usd

    def finish(
        self,
        outcome: Outcome,
        status: int,
        now_s: float,
        *,
        reason: str | None = None,
        usage: Usage | None = None,
        then: Then | None = None,
        shared: Shared = ALONE,
    ) -> None:
        """Record how the request ended; `then` sends the answer's last bytes.

        `shared`: what the record says of others that shared its generation.
        """
        self.done = True
        call, request, generation = self.call, self.request, self.generation
        self.generation = None  # no cycle is left: what a request took is free at once
        arrived_s = request.arrived_s
        replica = dispatched_s = gpu_ns = cost_nano_usd = failure = None
        attempts = 0
        tokens = NO_TOKENS
        if generation is not None:
            attempts, failure = generation.attempts, generation.failure
            replica, dispatched_s, gpu_ns, cost_nano_usd = self._sent(generation)
            if generation.meter is not None:
                tokens = generation.meter.figures(arrived_s, self._clock)
                usage = usage or generation.meter.usage
        if usage is None:
            usage = _UNUSED
        # By place: with more than 15 names a call goes through a dict, thrice as slow.
        timeline = RequestTimeline(
            request.id,
            request.tenant,
            request.model,
            request.endpoint,
            request.stream,
            call.arrived_at_utc_ns,
            outcome,
            status,
            replica,
            attempts,
            reason,
            dispatched_s,
            tokens.first_token_s,
            tokens.last_token_s,
            now_s - arrived_s,
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.output_tokens,
            usage.reasoning_tokens,
            tokens.output_tokens_counted,
            tokens.itl_mean_s,
            tokens.itl_p99_s,
            tokens.itl_max_s,
            tokens.token_times,
            call.trace_id,
            shared.merged_into,
            shared.merged_members,
            gpu_ns,
            cost_nano_usd,
            call.key,
            call.adapter,
            call.labels,
        )
        if self.arm is not None:
            self._driver.count_arm(timeline, self.arm, None if failure is None else failure[0])
        self._driver.finish(timeline, then or _nothing, self.abort)
