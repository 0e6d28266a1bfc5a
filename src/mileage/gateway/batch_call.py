"""BatchCall: the requests that go to an engine as one call, and what each gets of its answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from mileage.gateway.answer_head import forwarded_lines
from mileage.gateway.batch import ANSWER_BYTES_MAX, Batch, Part
from mileage.gateway.call import Call
from mileage.gateway.exchange import Exchange
from mileage.gateway.separate import Separate
from mileage.gateway.target import Target
from mileage.gateway.usage import Usage
from mileage.gateway.whole import WholeAnswer

if TYPE_CHECKING:
    from mileage.gateway.driver import Driver, Then
    from mileage.gateway.generation import Generation

__all__ = ["BatchCall"]

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

_REFUSED_ALL = frozenset((401, 403, 404, 405, 429, 501))
"""Errors that are about the call and not about an item: each alone would get the same."""


class BatchCall:
    """The part of a generation that only batches have."""

    def __init__(self, driver: Driver, generation: Generation, first: Call) -> None:
        self._driver, self._generation = driver, generation
        self._batch = Batch(first)
        self._parts: list[int] = []
        self._separate: Separate | None = None

    def add(self, exchange: Exchange) -> None:
        """Take another request into the call."""
        exchange.part = self._batch.add(exchange.call)

    @property
    def several(self) -> bool:
        """The engine was asked for more than one request: its answer has to be taken apart."""
        return len(self._parts) > 1

    def upstream_request(self, target: Target) -> bytes:
        """The whole HTTP request for those that somebody still waits for."""
        self._parts = parts = self._generation.audience.parts()
        call = self._batch.call(parts[0])
        return call.upstream_request(target, self._batch.body(parts) if len(parts) > 1 else None)

    def whole(self) -> WholeAnswer:
        """What takes the engine's answer."""
        return WholeAnswer(ANSWER_BYTES_MAX) if self.several else WholeAnswer()

    def is_refusal_of_all(self, status: int) -> bool:
        """Each request alone would get the same error."""
        return status in _REFUSED_ALL

    def answer(self, status: int, headers: Headers, whole: WholeAnswer, now_s: float) -> bool:
        """Tell the controller of the engine's answer, and give each one its own of it.

        False, and nothing was done: that is not an answer to all.
        """
        if status != 200 or whole.passing:
            return False
        found = self._batch.split(whole.body(), self._parts)
        if found is None:
            return False
        self._generation.end()
        try:
            self._generation.tell(whole.usage(), now_s)
        finally:
            self._give(found, forwarded_lines(headers), now_s)
        return True

    def _give(self, found: Mapping[int, Part], lines: bytes, now_s: float) -> None:
        audience = self._generation.audience
        groups = [(found[part], audience.part(part)) for part in self._parts]
        # What the engine did for those who have left is in the record of the first who waits.
        gone_tokens = sum(own.prompt_tokens or 0 for own, members in groups if not members)
        count = len(audience.members)
        for own, members in groups:
            if members:
                usage = Usage()
                if own.prompt_tokens is not None:
                    usage.prompt_tokens = own.prompt_tokens + gone_tokens
                    gone_tokens = 0
                end = partial(_respond, lines, own.body)
                audience.finish("ok", 200, now_s, end, usage=usage, members=members, count=count)

    def send_separately(self, target: Target) -> None:
        """The engine did not take the batch, or its answer is none: ask for each one alone."""
        self._separate = Separate(self._driver, self._generation, self._batch, target)
        self._separate.go_on()

    def left(self, exchange: Exchange) -> bool:
        """A client left; True where that was all there is to do about it."""
        if self._separate is None:
            return False
        self._separate.left(exchange.part)
        return True

    @property
    def separated(self) -> bool:
        """Each one is asked for alone."""
        return self._separate is not None


def _respond(lines: bytes, body: bytes, member: Exchange) -> Then:
    return partial(member.respond, 200, lines, body)
