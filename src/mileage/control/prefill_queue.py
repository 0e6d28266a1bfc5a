"""PrefillQueue: what an engine has yet to prefill, where its own policies go by deadline."""

from __future__ import annotations

import math
from bisect import bisect_left, insort

from mileage.control.flight import Flight

__all__ = ["PrefillQueue"]

_GUESS_S = 1e-4
_MEMORY_S = 10.0
_PACE_MIN, _PACE_MAX = 0.05, 2.0
_AGAIN_MIN_S = 1e-3


class _Entry:
    """One prompt; `left` of its `work` is not done yet."""

    __slots__ = ("arrived_s", "deadline_s", "left", "work")

    def __init__(self, arrived_s: float, deadline_s: float, left: float, work: float) -> None:
        self.arrived_s, self.deadline_s, self.left, self.work = arrived_s, deadline_s, left, work


class PrefillQueue:
    """Prompts that have no first token yet, by deadline: the earliest one is prefilled first, also
    where that interrupts another. One that has missed its deadline is given another one, twice as
    long after its arrival, as engines do it (`sim.prefill_plan`).

    Work is counted in milliseconds that it would take the replica with nothing else to do
    (`PromptSpeed`), of which it does `pace` per millisecond while others decode. What is in the
    middle is not seen from outside; it is taken to be worked off in order, at that pace: a long
    prompt would otherwise stand in everybody's way to its very end.
    """

    __slots__ = ("_busy_s", "_done", "_entries", "_order", "_passed_s", "pace")

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._order: list[tuple[float, int]] = []
        """Deadline and request."""
        self._passed_s = -math.inf
        self._done = self._busy_s = 0.0
        self.pace = 1.0

    def work(self, flight: Flight) -> float:
        """Of a request's prompt, in milliseconds; a guess until prompts have been seen."""
        tokens = flight.prompt_tokens
        return 1e3 * (flight.pool.speed.alone_s(tokens) or _GUESS_S * tokens)

    def add(self, flight: Flight, now_s: float) -> float:
        """A prompt is sent; the work before it."""
        before = self.before(flight.deadline_s, now_s)
        request, work = flight.request, self.work(flight)
        self._entries[request.id] = _Entry(request.arrived_s, flight.deadline_s, work, work)
        insort(self._order, (flight.deadline_s, request.id))
        return before

    def remove(self, flight: Flight, now_s: float) -> None:
        """Its first token came, or it has left. One that is not there is ignored."""
        self._pass(now_s)
        request_id = flight.request.id
        entry = self._entries.pop(request_id, None)
        if entry is None:
            return
        del self._order[bisect_left(self._order, (entry.deadline_s, request_id))]
        self._done += entry.work
        if self._busy_s > 0.0:
            pace = 1e-3 * self._done / self._busy_s
            self.pace = min(_PACE_MAX, max(_PACE_MIN, pace))

    def before(self, deadline_s: float, now_s: float) -> float:
        """Work left of prompts with an earlier deadline."""
        self._pass(now_s)
        entries, order = self._entries, self._order
        return sum([entries[each].left for _, each in order[: bisect_left(order, (deadline_s,))]])

    def _pass(self, now_s: float) -> None:
        """Work off what is left, and forget what was long ago."""
        passed_s = now_s - self._passed_s
        if passed_s <= 0.0:
            return
        self._passed_s = now_s
        order, entries = self._order, self._entries
        if not order:
            return
        keep = math.exp(-passed_s / _MEMORY_S)
        self._done *= keep
        self._busy_s = keep * self._busy_s + passed_s
        able = 1e3 * self.pace * passed_s
        for _, request_id in order:
            entry = entries[request_id]
            if able <= entry.left:
                entry.left -= able
                break
            able -= entry.left
            entry.left = 0.0
        while order[0][0] < now_s:
            request_id = order.pop(0)[1]
            entry = entries[request_id]
            while entry.deadline_s < now_s:
                entry.deadline_s += max(_AGAIN_MIN_S, entry.deadline_s - entry.arrived_s)
            insort(order, (entry.deadline_s, request_id))
