"""Audience: the clients that wait for one generation, and what of its answer is kept for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mileage.core.timeline import Outcome
from mileage.gateway.exchange import Exchange
from mileage.gateway.shared import ALONE, Shared
from mileage.gateway.usage import Usage

if TYPE_CHECKING:
    from mileage.gateway.driver import Driver, Then

__all__ = ["Audience"]

_KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Of all answers that are kept at once by one worker; past it the next ones take no joiners."""


class Audience:
    """One client, mostly; others with the same request may join it while the answer comes.

    What was sent is kept for those who join late, up to `merging.buffer_bytes_max`; past that the
    generation takes no more joiners. A slow client does not hold up the others: what it has not
    read is kept too, up to the same bound, and past that it is cut off. Only where all are slow
    does the engine wait for them.
    """

    __slots__ = (
        "_driver",
        "_kept",
        "_kept_bytes",
        "_late",
        "_lines",
        "_status",
        "members",
        "merge_key",
        "started",
    )

    def __init__(self, driver: Driver, leader: Exchange) -> None:
        self._driver = driver
        self.merge_key = merge_key = leader.request.merge_key
        self._kept: list[bytes] | None = None if merge_key is None else []
        self._kept_bytes = 0
        self._late = False  # somebody joined after the first token
        self._status = 0
        self._lines = b""
        self.members = [leader]
        """Those that still wait, in order of their joining."""
        self.started = False
        """A byte of the answer has gone out."""

    def join(self, exchange: Exchange, events: int, now_s: float) -> None:
        """Let another one in; it gets at once what was sent before, `events` token events of it."""
        self.members.append(exchange)
        if events:
            self._late = True
            exchange.join_late(events, now_s)
        if self.started:
            exchange.begin(self._status, self._lines)
            exchange.write(b"".join(self._kept or ()))

    def part(self, part: int) -> list[Exchange]:
        """Those that wait for this part of a batch."""
        return [member for member in self.members if member.part == part]

    def parts(self) -> list[int]:
        """The parts of a batch that somebody waits for."""
        return sorted({member.part for member in self.members})

    def take(self, part: int) -> list[Exchange]:
        """Those that wait for this part; from now on they are on their own."""
        taken = self.part(part)
        self.members = [member for member in self.members if member.part != part]
        return taken

    # --- the answer as it comes ---------------------------------------------------------------

    def start(self, status: int, lines: bytes) -> None:
        """Begin an answer of unknown length to all."""
        self.started = True
        self._status, self._lines = status, lines
        for member in self.members:
            member.begin(status, lines)

    def tokens_came(self, events: int, now_s: float) -> None:
        """Count token events for those that joined late."""
        if self._late:
            for member in self.members:
                member.tokens_came(events, now_s)

    def write(self, run: bytes) -> bool:
        """Send a part of the answer to all. True: nobody keeps up, and the engine is to wait."""
        if self._kept is not None:
            self._keep(self._kept, run)
        slow = True
        for member in self.members:
            if not member.write(run):
                slow = False
        return slow

    def all_slow(self) -> bool:
        """Nobody reads fast enough: the engine is to wait."""
        for member in self.members:  # noqa: SIM110 -- all() over a generator takes twice as long
            if not member.slow:
                return False
        return True

    def too_slow(self) -> list[Exchange]:
        """Those for whom more is kept back than may be."""
        bytes_max = self._driver.merging.buffer_bytes_max
        return [m for m in self.members if m.behind_bytes > bytes_max and m.slow]

    def _keep(self, kept: list[bytes], run: bytes) -> None:
        """Keep what was sent for those who join late, or take no more joiners."""
        driver, size = self._driver, len(run)
        self._kept_bytes += size
        driver.kept_bytes += size
        bytes_max = driver.merging.buffer_bytes_max
        if self._kept_bytes <= bytes_max and driver.kept_bytes <= _KEPT_BYTES_MAX:
            kept.append(run)
        else:
            self.forget()
            driver.close(self.members[0])

    def forget(self) -> None:
        """Keep nothing of the answer any more."""
        self._driver.kept_bytes -= self._kept_bytes
        self._kept_bytes = 0
        self._kept = None

    # --- ends ---------------------------------------------------------------------------------

    def leave(
        self,
        exchange: Exchange,
        outcome: Outcome,
        status: int,
        now_s: float,
        *,
        reason: str,
        then: Then | None = None,
    ) -> None:
        """One of several is out, and the others go on.

        Where others wait for the same part, the first of them will have its tokens on record.
        """
        count = len(self.members)
        self.members.remove(exchange)
        shared = _shared(exchange, self.part(exchange.part), count) if count > 1 else ALONE
        exchange.finish(
            outcome,
            status,
            now_s,
            reason=reason,
            then=then,
            shared=shared,
        )

    def finish(
        self,
        outcome: Outcome,
        status: int,
        now_s: float,
        end: Callable[[Exchange], Then],
        *,
        reason: str | None = None,
        usage: Usage | None = None,
        members: Sequence[Exchange] | None = None,
        count: int | None = None,
    ) -> None:
        """Record the end of all that still wait; `end` says how each one's answer ends.

        With `members`, of these only, who get the same; `count` are those that share the call. The
        engine's tokens are in the first one's record; those of the others refer to it.
        """
        if members is None:
            members = self.members
        if count is None:
            count = len(members)
        for member in members:
            member.finish(
                outcome,
                status,
                now_s,
                reason=reason,
                usage=usage,
                then=end(member),
                shared=_shared(member, members, count) if count > 1 else ALONE,
            )


def _shared(exchange: Exchange, members: Sequence[Exchange], count: int) -> Shared:
    """What a request's record says of those that share with it: the first has the tokens."""
    into = members[0].request.id if members and members[0] is not exchange else None
    return Shared(into, count)
