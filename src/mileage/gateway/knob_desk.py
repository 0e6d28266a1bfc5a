"""KnobDesk: has engines keep the limits that all workers' governors together have decided."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from mileage.core.replica import ReplicaView
from mileage.core.slo import Slo
from mileage.gateway.knob_seat import KnobSeat
from mileage.gateway.knob_status import KnobEvent, KnobStatus
from mileage.gateway.messages import ReplicaStatus, Report
from mileage.policy.control_fault import ControlFault
from mileage.policy.engine_knobs import ControlDocument

__all__ = ["Controlled", "EngineControl", "KnobDesk"]

_PACE_S: Final = 0.25
"""Between two requests to an engine, whatever its answers are."""
_STALE_S: Final = 5.0
"""An older report says nothing of what holds now."""
_BROKEN_S: Final = 30.0
_GIVE_BACK_S: Final = 2.0
_EVENTS_MAX: Final = 100
_log = logging.getLogger(__name__)


class EngineControl(Protocol):
    """Asks one engine's control."""

    async def ask(
        self, body: Mapping[str, Any] | None, timeout_s: float
    ) -> ControlDocument | ControlFault:
        """The document now (None), or after what the body asks for. Raises nothing."""
        ...


class Controlled(NamedTuple):
    """An engine that is to be controlled; `access`: by what it is known to be still the same."""

    control: EngineControl
    access: object
    lease_s: float
    step_budget: bool


class _Place(NamedTuple):
    engine: Controlled
    seat: KnobSeat
    news: asyncio.Event
    task: asyncio.Task[None]


class _Heard(NamedTuple):
    report: Report
    replicas: dict[str, ReplicaStatus]


class KnobDesk:
    """Sends each engine what the limit that all workers keep together comes to.

    The gateway goes on holding what is above its limit: what the engine does for it is to count
    requests from elsewhere as well. So nothing depends on an engine that does not answer.

    `live` are the processes of the workers. Where some of them have reported lately and others have
    not, the last decision stays; where none has, nothing is limited.
    """

    def __init__(
        self, live: Callable[[], Iterable[int]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._live, self._clock = live, clock
        self._places: dict[str, _Place] = {}
        self._heard: dict[int, _Heard] = {}
        self._events: deque[KnobEvent] = deque(maxlen=_EVENTS_MAX)

    # --- life ---------------------------------------------------------------------------------

    async def configure(self, engines: Mapping[str, Controlled]) -> None:
        """Control these from now on; one that is no more, or is asked otherwise, is given back."""
        left = [
            name
            for name, place in self._places.items()
            if name not in engines or engines[name].access != place.engine.access
        ]
        await self._leave(left)
        for name, engine in engines.items():
            if name not in self._places:
                seat = KnobSeat(name, engine.lease_s, self._tell, step_budget=engine.step_budget)
                news = asyncio.Event()
                task = asyncio.get_running_loop().create_task(self._run(engine, seat, news))
                self._places[name] = _Place(engine, seat, news, task)

    async def stop(self) -> None:
        """Give all values back; an engine that does not answer has its lease."""
        await self._leave(list(self._places))

    async def _leave(self, names: list[str]) -> None:
        places = [self._places.pop(name) for name in names]
        for place in places:
            place.seat.ended = True
            place.task.cancel()
        await asyncio.gather(*(place.task for place in places), return_exceptions=True)
        await asyncio.gather(*(_give_back(place) for place in places if place.seat.holds))

    async def _run(self, engine: Controlled, seat: KnobSeat, news: asyncio.Event) -> None:
        """Ask the engine again and again, until cancelled."""
        paced_s = -math.inf
        while not seat.ended:
            try:
                self._decide((seat,))
                if seat.due_s > self._clock() or paced_s > self._clock():
                    await self._rest(max(seat.due_s, paced_s), paced_s, news)
                    continue
                answer = await engine.control.ask(seat.body(self._clock()), seat.answer_max_s)
                seat.heard(answer, self._clock())
                paced_s = self._clock() + _PACE_S
            except Exception:  # a bug of ours costs the engine its cap, and nothing else
                _log.exception("engine %s: its control could not be asked", seat.replica)
                paced_s = self._clock() + _BROKEN_S
                await self._rest(paced_s, paced_s, news)

    async def _rest(self, until_s: float, paced_s: float, news: asyncio.Event) -> None:
        """Wait until then, or for news; until `paced_s` in any case."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(until_s - self._clock()):
                await news.wait()
        news.clear()
        if paced_s > self._clock():
            await asyncio.sleep(paced_s - self._clock())

    # --- what is heard of workers and engines -------------------------------------------------

    def report(self, report: Report) -> None:
        """A worker's limits."""
        by_name = {status.name: status for status in report.replicas}
        self._heard[report.pid] = _Heard(report, by_name)
        places = list(self._places.values())
        due_s = [place.seat.due_s for place in places]
        self._decide([place.seat for place in places])
        for place, before_s in zip(places, due_s, strict=True):
            if place.seat.due_s != before_s:
                place.news.set()

    def gone(self, pid: int) -> None:
        """The worker is no more."""
        self._heard.pop(pid, None)

    def up(self, replica: str) -> None:
        """The replica was found to be up: it may be another process."""
        place = self._places.get(replica)
        if place is not None:
            place.seat.hasten(self._clock())
            place.news.set()

    def complete(self, view: ReplicaView) -> ReplicaView:
        """The observation with what the engine runs at once, where only its control tells.

        Without it that would be inferred from what runs while others wait: with a cap of ours in
        force, the cap would be taken for all that it can.
        """
        place = self._places.get(view.replica)
        if place is None or view.running_max is not None or place.seat.running_max is None:
            return view
        return msgspec.structs.replace(view, running_max=place.seat.running_max)

    def _tell(self, event: KnobEvent) -> None:
        self._events.append(event)
        _log.warning("engine %s: %s", event.replica, event.detail)

    def _decide(self, seats: Iterable[KnobSeat]) -> None:
        """Put what the workers' governors have decided into seats, where they all have told."""
        now_s, pids = self._clock(), list(self._live())
        heard = [self._heard[pid] for pid in pids if pid in self._heard]
        fresh = [each for each in heard if now_s - each.report.at_s <= _STALE_S]
        if fresh and len(fresh) < len(pids):
            return
        acts = all(_acts(each.report) for each in fresh)
        for seat in seats:
            limit = _limit(fresh, seat.replica, seat.limit) if fresh and acts else None
            seat.decide(limit, _slo(fresh, seat.replica), now_s)

    # --- for people ---------------------------------------------------------------------------

    def statuses(self) -> list[KnobStatus]:
        """How it stands with each engine that is controlled."""
        now_s = self._clock()
        return [place.seat.status(now_s) for place in self._places.values()]

    def events(self) -> list[KnobEvent]:
        """What happened last, the oldest first."""
        return list(self._events)


async def _give_back(place: _Place) -> None:
    body = place.seat.give_back()
    answer = await place.engine.control.ask(body, _GIVE_BACK_S)
    if isinstance(answer, ControlFault):
        _log.warning(
            "engine %s: its limits could not be given back (%s): they end with their lease of %g s",
            place.seat.replica,
            answer.message,
            place.engine.lease_s,
        )


def _acts(report: Report) -> bool:
    """Whether the worker's governor holds requests at its limits."""
    governor = report.governor
    if governor is None or governor.failure is not None or governor.state is None:
        return False
    return governor.state.mode == "act"


def _limit(heard: Iterable[_Heard], replica: str, before: int | None) -> int | None:
    """What all workers together may send there; None: nothing is to be limited. While some of them
    do not use it yet, or any more, it is what it was `before`."""
    total = unused = 0
    for each in heard:
        status = each.replicas.get(replica)
        if status is None:
            continue
        if status.state == "down":
            unused += 1
        elif status.limit is None:
            return None
        else:
            # Each worker rounds its share up.
            total += math.ceil(status.limit)
    return before if total and unused else total or None


def _slo(heard: Iterable[_Heard], replica: str) -> Slo:
    """The targets of the replica's first model."""
    for report, replicas in heard:
        status = replicas.get(replica)
        if status is not None and status.models and report.governor is not None:
            return report.governor.slo.of(status.models[0])
    return Slo()
