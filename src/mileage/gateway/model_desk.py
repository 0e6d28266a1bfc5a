"""ModelDesk: loads models that requests wait for, and unloads those that nobody uses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from datetime import datetime, tzinfo
from typing import Protocol

from mileage.core.errors import EngineError, MileageError
from mileage.core.events import Event, Loadable, LoadFailed, ReplicaDown
from mileage.core.model_loader import ModelLoader
from mileage.gateway.messages import Report
from mileage.gateway.model_room import ModelRoom
from mileage.gateway.model_seat import ModelSeat, ModelStatus
from mileage.gateway.model_use import ModelUse
from mileage.policy.residency.idle_config import IdleConfig

__all__ = ["ModelDesk", "ReplicaWatcher"]

_TICK_S = 0.5
_ATTEMPTS = 3
_PAUSE_S = 0.5
_UP_S = 5.0
"""One that has been loaded for longer, and is not found to be up, does not help those who wait."""
_log = logging.getLogger(__name__)


class ReplicaWatcher(Protocol):
    """Who watches the health of replicas, and tells the workers of those that are up."""

    def is_enabled(self, name: str) -> bool:
        """Whether it is to be used."""
        ...

    def watch_again(self, name: str) -> None:
        """It has been loaded: tell the workers as soon as it is found to be up."""
        ...

    async def unwatch(self, name: str) -> None:
        """It is about to be unloaded: tell nobody of it any more."""
        ...


class ModelDesk:
    """Holds the replicas that can sleep, and decides about them twice a second.

    A model is unloaded in three steps, so that no request is lost. The workers are told that the
    replica is down and loadable: from then on they hold what comes, and ask for it. Once each of
    them has reported that it knows so, and has nothing there, the model is unloaded. Where any asks
    for it before that, it stays.

    Several replicas may have the same model. Workers hold requests only while no replica takes
    them: so one that is loaded for long, and is waited for, is down, and another one is woken.

    `tell` passes an event to the workers; `live` are the processes of those that there are.
    """

    def __init__(
        self,
        config: IdleConfig,
        zone: tzinfo,
        *,
        tell: Callable[[Event], None],
        watcher: ReplicaWatcher,
        live: Callable[[], Iterable[int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._zone = config, zone
        self._tell, self._watcher, self._clock = tell, watcher, clock
        self._seats: dict[str, ModelSeat] = {}
        self._use = ModelUse(live)
        self._room = ModelRoom(
            self._seats,
            config.memory_max_bytes,
            waits=self._waits,
            warm=lambda seat: seat.warm(self._local()),
            unload=self._unload,
            clock=clock,
        )
        self._sleeps = 0

    # --- life ---------------------------------------------------------------------------------

    async def add(self, replica: str, loader: ModelLoader, *, load: bool) -> None:
        """One more replica, as it is now; `load`: it is to be loaded where it is not."""
        now_s = self._clock()
        seat = self._seats[replica] = ModelSeat(replica, loader, self._config, now_s)
        seat.enabled = self._watcher.is_enabled(replica)
        try:
            found = await loader.look()
        except EngineError as error:  # its health checks will tell more
            _log.warning("%s: whether it sleeps is not known: %s", replica, error)
            seat.become("loaded", now_s)
            self._watcher.watch_again(replica)
            return
        self._name(seat, found.models)
        if found.loaded:
            seat.become("loaded", now_s)
            self._watcher.watch_again(replica)
            return
        self._tell_down(seat)
        if load and seat.enabled:
            self._load(seat)

    async def remove(self, replica: str) -> None:
        """The replica is no more; nothing, where it was none."""
        seat = self._seats.pop(replica, None)
        if seat is not None and seat.task is not None:
            seat.task.cancel()
            await asyncio.gather(seat.task, return_exceptions=True)
            self._room.leave(seat)  # where it was cancelled before it began

    def configure(self, config: IdleConfig, zone: tzinfo) -> None:
        """Decide by this from now on."""
        self._config, self._zone = config, zone
        self._room.memory_max_bytes = config.memory_max_bytes
        for seat in self._seats.values():
            seat.configure(config)

    async def run(self) -> None:
        """Decide again and again, until cancelled."""
        while True:
            for seat in list(self._seats.values()):
                try:
                    self._look_at(seat)
                except Exception:
                    _log.exception("%s: when it sleeps could not be decided", seat.replica)
            for model in self._use.waited_for():  # whatever became of who was woken for them
                self._wake_one(model, self._clock())
            await asyncio.sleep(_TICK_S)

    async def stop(self) -> None:
        """Give up what is being loaded or unloaded."""
        tasks = [seat.task for seat in self._seats.values() if seat.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what is told -------------------------------------------------------------------------

    def wanted(self, model: str) -> None:
        """Requests of a worker wait for the model."""
        now_s = self._clock()
        if not self._wake_one(model, now_s):
            self._tell_failed(model, now_s)

    def up(self, replica: str, models: tuple[str, ...]) -> None:
        """A replica was found to be up: what waits for it has gone there."""
        seat = self._seats.get(replica)
        if seat is not None and seat.state == "loaded":
            seat.wanted = False
            self._name(seat, models)
            self._tell(Loadable(replica, ()))

    def died(self, replica: str, reason: str) -> bool:
        """A loaded replica ended by itself: it is loaded again when it is wanted. False: it is none
        that can sleep, or was not loaded."""
        seat = self._seats.get(replica)
        if seat is None or seat.state != "loaded":
            return False
        _log.warning("%s ended: %s", replica, reason)
        self._unload(seat, f"it ended: {reason}", drain=False)
        return True

    def report(self, report: Report) -> None:
        """A worker's report."""
        for name in self._use.report(report, self._seats):
            self._seats[name].used(report.at_s)

    def gone(self, pid: int) -> None:
        """A worker has ended."""
        self._use.gone(pid)

    # --- what is asked ------------------------------------------------------------------------

    def statuses(self) -> list[ModelStatus]:
        """All, in the order of the configuration."""
        now_s, local = self._clock(), self._local()
        return [
            seat.status(now_s, waiting=self._waits(seat), warm=seat.warm(local))
            for seat in self._seats.values()
        ]

    def sleep(self, name: str) -> ModelStatus:
        """Unload a model, or a replica, now. KeyError: none has the name; MileageError: not now."""
        seat = self._find(name)
        if seat.state == "loaded":
            if self._use.in_flight(seat.replica) or self._waits(seat):
                raise MileageError(f"{name} has requests: it can sleep when they are answered")
            self._unload(seat, "asked for")
        elif seat.state == "loading":
            raise MileageError(f"{name} is being loaded")
        return self._status(seat)

    def wake(self, name: str) -> ModelStatus:
        """Load a model, or a replica, now. KeyError: none has the name."""
        seat = self._find(name)
        if seat.state == "asleep":
            self._load(seat)
        elif seat.state == "unloading":
            seat.wanted = True
        return self._status(seat)

    def enable(self, replica: str, enabled: bool) -> None:
        """A replica that is not to be used is not loaded when requests come, either."""
        seat = self._seats.get(replica)
        if seat is None:
            return
        seat.enabled = enabled
        seat.wanted = seat.wanted and enabled
        if seat.state == "unloading" or (seat.state != "loaded" and enabled):
            self._tell_down(seat)  # again: what the workers were told of it since is another reason
        elif seat.state != "loaded":
            self._tell(Loadable(replica, ()))

    def is_resting(self, replica: str) -> bool:
        """Whether it can sleep and is not loaded: its health says nothing."""
        seat = self._seats.get(replica)
        return seat is not None and seat.state != "loaded"

    def _find(self, name: str) -> ModelSeat:
        found = self._seats.get(name)
        if found is None:
            found = next((s for s in self._seats.values() if name in s.models), None)
        if found is None:
            raise KeyError(name)
        return found

    def _status(self, seat: ModelSeat) -> ModelStatus:
        warm = seat.warm(self._local())
        return seat.status(self._clock(), waiting=self._waits(seat), warm=warm)

    # --- decisions ----------------------------------------------------------------------------

    def _look_at(self, seat: ModelSeat) -> None:
        now_s = self._clock()
        warm = seat.warm(self._local())
        if seat.state == "asleep":
            if warm and seat.enabled and now_s >= seat.retry_s:
                self._load(seat)
        elif seat.state == "loaded":
            if self._use.in_flight(seat.replica) or self._waits(seat):
                seat.used(now_s)
            else:
                seat.rests(now_s)
                if not warm and now_s >= seat.due_s():
                    idle_s = now_s - (seat.idle_since_s or now_s)
                    self._unload(seat, f"no request for {idle_s:.0f} s")

    def _able(self, model: str) -> list[ModelSeat]:
        return [s for s in self._seats.values() if model in s.models and s.enabled]

    def _wake_one(self, model: str, now_s: float) -> bool:
        """See to it that a replica comes that has the model; False: a load failed and cannot be
        tried again yet."""
        seats = self._able(model)
        for seat in seats:
            if seat.state == "loading" or seat.is_new(now_s - _UP_S):
                return True
        for seat in seats:
            if seat.state == "unloading":
                seat.wanted = True
                return True
        asleep = [seat for seat in seats if seat.state == "asleep"]
        if not asleep:
            return True
        seat = min(asleep, key=lambda each: each.retry_s)
        if now_s < seat.retry_s:
            return False
        seat.wanted = True
        seat.used(now_s)
        self._load(seat)
        return True

    def _tell_failed(self, model: str, now_s: float) -> None:
        """The model cannot be loaded until the first replica of it may try again."""
        asleep = [seat for seat in self._able(model) if seat.state == "asleep"]
        if asleep:
            seat = min(asleep, key=lambda each: each.retry_s)
            retry_s = round(max(0.0, seat.retry_s - now_s), 3)
            self._tell(LoadFailed(model, seat.reason or "it failed before", retry_s))

    def _tell_down(self, seat: ModelSeat) -> None:
        self._tell(Loadable(seat.replica, seat.models if seat.enabled else ()))
        told = seat.told if seat.state == "unloading" else f"asleep: {seat.reason}"
        self._tell(ReplicaDown(seat.replica, told))

    def _load(self, seat: ModelSeat) -> None:
        seat.become("loading", self._clock(), "it is being loaded")
        self._room.ask(seat)
        seat.task = asyncio.create_task(self._do_load(seat), name=f"load {seat.replica}")

    async def _do_load(self, seat: ModelSeat) -> None:
        try:
            await self._room.wait(seat)
            started_s = self._clock()
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    await seat.loader.load()
                    break
                except EngineError as error:
                    if attempt == _ATTEMPTS:
                        raise
                    _log.warning("%s: a load failed and is tried again: %s", seat.replica, error)
                    await asyncio.sleep(_PAUSE_S * attempt)
        except MileageError as error:
            self._load_failed(seat, str(error))
            return
        except Exception as error:
            _log.exception("%s could not be loaded", seat.replica)
            self._load_failed(seat, f"{type(error).__name__}: {error}")
            return
        now_s = self._clock()
        seat.loaded(now_s - started_s, now_s)
        _log.info("%s is loaded, in %.1f s", seat.replica, now_s - started_s)
        self._watcher.watch_again(seat.replica)

    def _load_failed(self, seat: ModelSeat, reason: str) -> None:
        now_s, config = self._clock(), self._config
        pause_s = min(config.retry_max_s, config.retry_s * 2.0 ** min(seat.failures_in_a_row, 30))
        seat.failures_in_a_row += 1
        seat.load_failures_total += 1
        needed = seat.wanted or self._waits(seat)
        seat.retry_s, seat.wanted = now_s + pause_s, False
        seat.become("asleep", now_s, reason)
        _log.error("%s could not be loaded, again in %.0f s: %s", seat.replica, pause_s, reason)
        for model in seat.models:
            may_try = any(s.state != "asleep" or s.retry_s <= now_s for s in self._able(model))
            if not (self._wake_one(model, now_s) if needed else may_try):
                self._tell_failed(model, now_s)

    def _unload(self, seat: ModelSeat, reason: str, *, drain: bool = True) -> None:
        self._sleeps += 1
        seat.wanted = False
        seat.become("unloading", self._clock(), reason)
        # The number tells this time from any before, so that what a worker says is about this one.
        seat.told = f"asleep: {reason} ({self._sleeps})"
        self._tell_down(seat)
        done = self._do_unload(seat, reason, drain=drain)
        seat.task = asyncio.create_task(done, name=f"unload {seat.replica}")

    async def _do_unload(self, seat: ModelSeat, reason: str, *, drain: bool) -> None:
        await self._watcher.unwatch(seat.replica)
        while drain and not self._use.has_left(seat.replica, seat.told):
            if seat.wanted:
                self._stays(seat)
                return
            await asyncio.sleep(_TICK_S / 5)
        try:
            await seat.loader.unload()
        except Exception as error:
            _log.exception("%s could not be unloaded", seat.replica)
            failure = f"it could not be unloaded: {error}"
            if await self._is_loaded(seat):
                self._stays(seat, failure)
                return
            reason = failure
        seat.unloads_total += 1
        seat.become("asleep", self._clock(), reason)
        if seat.wanted:
            seat.used(self._clock())
            self._load(seat)

    def _stays(self, seat: ModelSeat, reason: str | None = None) -> None:
        seat.become("loaded", self._clock(), reason)
        if seat.wanted:
            seat.used(self._clock())
        self._watcher.watch_again(seat.replica)

    async def _is_loaded(self, seat: ModelSeat) -> bool:
        """By its own word. Where it gives none it is taken for asleep: who wants it then has it
        loaded, and that begins with another look."""
        try:
            return (await seat.loader.look()).loaded
        except Exception as error:
            _log.warning("%s: whether it sleeps is not known: %s", seat.replica, error)
            return False

    def _name(self, seat: ModelSeat, models: tuple[str, ...]) -> None:
        if models and models != seat.models:
            seat.models = models
            seat.configure(self._config)

    def _waits(self, seat: ModelSeat) -> int:
        return self._use.waiting(seat.models)

    def _local(self) -> datetime:
        return datetime.now(self._zone)
