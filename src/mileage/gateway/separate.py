"""Separate: the requests of a batch that an engine did not take, each asked for alone, once."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from mileage.core.events import Cancelled
from mileage.gateway.batch import ANSWER_BYTES_MAX, Batch
from mileage.gateway.exchange import Exchange
from mileage.gateway.outcomes import outcome_of
from mileage.gateway.refusals import Refusal
from mileage.gateway.target import Target
from mileage.gateway.usage import Usage
from mileage.gateway.whole import WholeAnswer
from mileage.wire.upstream import BreakKind, Carrier

if TYPE_CHECKING:
    from mileage.gateway.driver import Driver
    from mileage.gateway.generation import Generation

__all__ = ["Separate"]

_AT_ONCE = 4
"""They were to be one call: the engine is not to get all of them at once."""


class Separate:
    """Takes over from a generation whose batch was refused: one bad item must not fail the others.

    The controller knows the whole as one request: it is told when the last part has its answer.
    """

    def __init__(
        self, driver: Driver, generation: Generation, batch: Batch, target: Target
    ) -> None:
        self._driver, self._generation = driver, generation
        self._batch, self._target = batch, target
        self._waiting = dict.fromkeys(generation.audience.parts())
        self._running: dict[int, _Alone] = {}
        self._answered: list[
            int
        ] = []  # requests that have an answer the controller has not heard of
        self._usage = Usage()

    def go_on(self) -> None:
        """Send the next ones, and tell the controller when there are none left."""
        while self._waiting and len(self._running) < _AT_ONCE:
            part = next(iter(self._waiting))
            del self._waiting[part]
            self._running[part] = alone = _Alone(part, self)
            request = self._batch.call(part).upstream_request(self._target)
            self._target.pool.send(request, alone, time.monotonic())
        if not self._running:
            self._tell(time.monotonic())

    def left(self, part: int) -> None:
        """A client left that waited for this part."""
        if not self._generation.audience.part(part):
            self._waiting.pop(part, None)
            alone = self._running.pop(part, None)
            if alone is not None and alone.upstream is not None:
                alone.upstream.abort()
            self.go_on()

    def cut(self) -> None:
        """Something of ours failed."""
        self._generation.cut()

    def answered(
        self, part: int, status: int, headers: list[tuple[bytes, bytes]], whole: WholeAnswer
    ) -> None:
        """The engine has answered one part."""
        usage = whole.usage() if status == 200 else None
        if usage is not None and usage.prompt_tokens is not None:
            self._usage.prompt_tokens = (self._usage.prompt_tokens or 0) + usage.prompt_tokens
        request = self._batch.call(part).request
        status, lines, body = self._target.answer(request, status, headers, whole.body())
        outcome, reason = outcome_of(status)
        audience, now_s = self._generation.audience, time.monotonic()
        members = audience.take(part)
        audience.finish(
            outcome,
            status,
            now_s,
            lambda member: partial(member.respond, status, lines, body),
            reason=reason,
            usage=usage,
            members=members,
        )
        self._ended(part, members)

    def broken(self, part: int, kind: BreakKind, message: str) -> None:
        """The answer to one part will not come."""
        name = self._target.name
        self._driver.metrics.upstream_failures.add((name, kind))
        status = {"timeout": 504, "busy": 503}.get(kind, 502)
        refusal = Refusal(status, f"{name}: {message}", code="upstream_failed")
        audience, now_s = self._generation.audience, time.monotonic()
        members = audience.take(part)
        audience.finish(
            "failed",
            status,
            now_s,
            lambda member: member.refusing(refusal),
            reason=kind,
            members=members,
        )
        self._ended(part, members)

    def _ended(self, part: int, members: list[Exchange]) -> None:
        self._running.pop(part, None)
        self._answered += [member.request.id for member in members]
        self.go_on()

    def _tell(self, now_s: float) -> None:
        generation = self._generation
        generation.end()
        if self._usage.prompt_tokens is not None and self._answered:
            self._driver.handle(self._usage.finished(generation.id), now_s)
        else:
            for request_id in self._answered:
                self._driver.handle(Cancelled(request_id), now_s)


class _Alone:
    """The sink of one part's answer."""

    __slots__ = ("_headers", "_owner", "_part", "_status", "_whole", "upstream")

    def __init__(self, part: int, owner: Separate) -> None:
        self._part, self._owner = part, owner
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._whole = WholeAnswer(ANSWER_BYTES_MAX)
        self.upstream: Carrier | None = None

    def head_received(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The answer's head."""
        self._status, self._headers = status, headers

    def body_received(self, data: bytes, now_s: float) -> None:
        """A part of the answer."""
        if self._whole.take(data):
            if self.upstream is not None:
                self.upstream.abort()
            self._too_long()

    def answer_ended(self, data: bytes, now_s: float) -> None:
        """The answer is complete."""
        if self._whole.take(data):
            self._too_long()
        elif self._status == 200 and not self._whole.ends_well():
            self._owner.broken(self._part, "broken", "connection closed inside the answer")
        else:
            self._owner.answered(self._part, self._status, self._headers, self._whole)

    def answer_broken(self, kind: BreakKind, message: str) -> None:
        """No answer will come."""
        self._owner.broken(self._part, kind, message)

    def cut(self) -> None:
        """Something of ours failed."""
        self._owner.cut()

    def _too_long(self) -> None:
        self._owner.broken(self._part, "broken", f"an answer above {ANSWER_BYTES_MAX} bytes")
