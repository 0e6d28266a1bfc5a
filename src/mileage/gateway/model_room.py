"""ModelRoom: gives models that are to be loaded room in the memory that all of them share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from mileage.core.errors import EngineError
from mileage.gateway.model_seat import ModelSeat
from mileage.policy.residency.room import make_room

__all__ = ["ModelRoom"]

_TICK_S = 0.5


class ModelRoom:
    """Those that wait for room, in the order of asking, so that none starves.

    Those that nobody waits for let the others go first: one that is loaded ahead may have to wait
    for as long as another is kept warm. `unload` is called with whoever is to go, and why.
    """

    def __init__(
        self,
        seats: Mapping[str, ModelSeat],
        memory_max_bytes: int | None,
        *,
        waits: Callable[[ModelSeat], int],
        warm: Callable[[ModelSeat], bool],
        unload: Callable[[ModelSeat, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seats, self.memory_max_bytes = seats, memory_max_bytes
        self._waits, self._warm, self._unload, self._clock = waits, warm, unload, clock
        self._queue: list[ModelSeat] = []  # takes nothing of it yet

    def ask(self, seat: ModelSeat) -> None:
        """It is to be loaded."""
        self._queue.append(seat)

    def leave(self, seat: ModelSeat) -> None:
        """It needs no room any more, or has it."""
        if seat in self._queue:
            self._queue.remove(seat)

    async def wait(self, seat: ModelSeat) -> None:
        """Have others unloaded where the memory is not enough; waits while they are in use.

        Raises EngineError where it can never fit.
        """
        try:
            while not self._has(seat):  # noqa: ASYNC110 - memory is freed without an event
                await asyncio.sleep(_TICK_S)
        finally:
            self.leave(seat)

    def _has(self, seat: ModelSeat) -> bool:
        """If not, and it is its turn, those that may go begin to."""
        needs_bytes, limit = seat.loader.needs_bytes(), self.memory_max_bytes
        if needs_bytes is None or limit is None:
            return True
        if needs_bytes > limit:
            message = f"it needs {needs_bytes} bytes (idle.memory_max_bytes is {limit})"
            raise EngineError(seat.replica, message)
        first = next((each for each in self._queue if self._waits(each)), self._queue[0])
        if first is not seat:
            return False
        seats = self._seats.values()
        others = [s for s in seats if s not in self._queue and s.state != "asleep"]
        taken = sum(s.loader.memory_bytes() or s.loader.needs_bytes() or 0 for s in others)
        if taken + needs_bytes <= limit:
            return True
        now_s = self._clock()
        free = [s for s in others if s.may_go_s() <= now_s and not self._warm(s)]
        residents = [found for s in free if (found := s.resident(now_s)) is not None]
        for name in make_room(residents, taken + needs_bytes - limit) or ():
            self._unload(self._seats[name], f"it made room for {seat.replica}")
        return False
