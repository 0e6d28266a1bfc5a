"""AdapterDesk: the supervisor's side of LoRA adapters: has them loaded, and tells the workers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from mileage.core.adapter_loader import AdapterFile, AdapterLoader
from mileage.core.errors import MileageError
from mileage.core.events import Event, Loadable, LoadFailed, ReplicaUp
from mileage.gateway.adapter_metrics import AdapterMetrics
from mileage.gateway.adapter_state import AdapterState, AdapterStates, PlacesState
from mileage.policy.residency.adapters import AdapterConfig, LoraConfig
from mileage.policy.residency.keeper import AdapterChange, AdapterKeeper

__all__ = ["AdapterDesk"]

_LOOK_S = 1.0
_HURRY_S = 0.05
"""So often it is looked while requests wait."""
_SETTLE_S = 0.2
"""From when workers were told that an adapter goes until it does: what they have sent is there."""
_UNASKED_S = 3.0
"""A worker that said that requests wait is believed so long without a report that has them."""
_RETRY_S = 1.0
_log = logging.getLogger(__name__)


class AdapterDesk:
    """Drives an AdapterKeeper: all events of replicas pass through it, and what workers report.

    `deliver` tells all workers an event. `told_anew` is asked to tell the workers of a replica
    again, `look_again` to ask the replica what it serves. `locate` gives the path of an adapter for
    a replica's engine, and may fetch it: it runs in a thread.
    """

    def __init__(
        self,
        *,
        deliver: Callable[[Event], None],
        told_anew: Callable[[str], None],
        look_again: Callable[[str], None],
        locate: Callable[[str, AdapterConfig], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deliver, self._told_anew, self._look_again = deliver, told_anew, look_again
        self._locate = locate
        self._clock = clock
        self._config = LoraConfig()
        self._catalogue: dict[str, AdapterConfig] = {}
        self._keeper = AdapterKeeper(self._config)
        self._loaders: dict[str, AdapterLoader] = {}
        self._going: dict[str, frozenset[str]] = {}
        """By replica: what is unloaded, or about to be, and still told to be there, or will be."""
        self._loadable: dict[str, tuple[str, ...]] = {}
        self._waiting: dict[int, Mapping[str, int]] = {}
        self._asked: dict[str, float] = {}
        self._uses: dict[str, int] = {}
        self._hurry = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.metrics = AdapterMetrics()

    # --- what is told -------------------------------------------------------------------------

    def configure(
        self,
        config: LoraConfig,
        adapters: Iterable[AdapterConfig],
        loaders: Mapping[str, AdapterLoader],
    ) -> None:
        """Other adapters, and what loads them into each replica that can; what was loaded and is
        not configured any more, or from another path, is not used from now on, and unloaded."""
        self._config = config
        self._catalogue = {adapter.name: adapter for adapter in adapters}
        self._loaders = dict(loaders)
        self._keeper.configure(config, self._catalogue.values())
        for name, places in self._keeper.places.items():
            if name not in self._loaders:
                self._keeper.replica_down(name)
                self._going.pop(name, None)
                if self._loadable.pop(name, ()):
                    self._deliver(Loadable(name, ()))
            else:
                outdated = places.stale | places.outdated
                self._going[name] = self._going.get(name, frozenset()) | outdated
        self._hurry.set()

    def up(self, event: ReplicaUp) -> ReplicaUp:
        """A replica is up: what workers are to be told of it, without what is being unloaded."""
        loader = self._loaders.get(event.replica)
        if loader is None:
            return event
        going = self._going.get(event.replica, frozenset()) & frozenset(event.models)
        places = self._keeper.places.get(event.replica)
        if places is not None:  # hidden before it is there, so that nobody ever sees it
            going |= places.outdated
        self._going[event.replica] = going
        hidden = going if places is None else going - places.stale
        names = [each.model for each in event.adapters if each.model not in hidden]
        self._keeper.replica_up(event.replica, event.models, names, loader.slots, self._clock())
        self._tell_loadable(event)
        self._hurry.set()
        if not going:
            return event
        return msgspec.structs.replace(
            event,
            models=tuple(name for name in event.models if name not in going),
            adapters=tuple(each for each in event.adapters if each.model not in going),
        )

    def down(self, replica: str) -> None:
        """A replica is down."""
        self._keeper.replica_down(replica)

    def wanted(self, model: str) -> None:
        """Requests of a worker have begun to wait for a model."""
        if model not in self._catalogue:
            return
        refusal = self._keeper.refusal(model, self._clock())
        if refusal is not None:
            self._deliver(LoadFailed(model, refusal.reason, refusal.retry_after_s))
            return
        self._asked[model] = self._clock()
        self._hurry.set()

    def reported(self, pid: int, uses: Mapping[str, int], waiting: Mapping[str, int]) -> None:
        """A worker tells what came for adapters since its last report, and what waits now."""
        for name, times in uses.items():
            self._uses[name] = self._uses.get(name, 0) + times
        known = self._catalogue
        self._waiting[pid] = {name: n for name, n in waiting.items() if name in known}

    def worker_gone(self, pid: int) -> None:
        """Nobody waits there any more."""
        self._waiting.pop(pid, None)

    # --- what is asked of it ------------------------------------------------------------------

    def ask_load(self, name: str) -> None:
        """Load it now. KeyError where it is not in the catalogue."""
        self._keeper.ask_load(name)
        self._hurry.set()

    def ask_unload(self, name: str) -> None:
        """Unload it wherever it is; a request for it loads it again. KeyError likewise."""
        self._keeper.ask_unload(name)
        self._hurry.set()

    def pin(self, name: str, pinned: bool) -> None:
        """Pin it, or no longer, until the gateway ends. KeyError likewise."""
        self._keeper.pin(name, pinned)
        self._hurry.set()

    def states(self, *, host_cache_bytes: int = 0) -> AdapterStates:
        """How all stand, in the order of the configuration; so much of their files is in memory."""
        now_s, keeper = self._clock(), self._keeper
        waiting = self._all_waiting(now_s)
        replicas = [
            PlacesState(
                replica=each.name,
                up=each.up,
                slots=each.slots,
                resident=sorted(each.resident),
                busy=each.busy,
                load_s=each.load_s if each.measured_loads else None,
            )
            for each in keeper.places.values()
        ]
        adapters = [
            AdapterState(
                name=adapter.name,
                base=adapter.base,
                path=adapter.path,
                tenant=adapter.tenant,
                pinned=keeper.is_pinned(adapter.name),
                resident=[e.replica for e in replicas if e.up and adapter.name in e.resident],
                heat=keeper.heat(adapter.name, now_s),
                waiting=waiting.get(adapter.name, 0),
                error=keeper.failure(adapter.name),
            )
            for adapter in self._catalogue.values()
        ]
        return AdapterStates(
            adapters=adapters, replicas=replicas, host_cache_bytes=host_cache_bytes
        )

    # --- what it does -------------------------------------------------------------------------

    async def run(self) -> None:
        """Look whenever something may be to be done, until cancelled; ends its changes then."""
        try:
            while True:
                self._hurry.clear()
                try:
                    self._look()
                except Exception:
                    _log.exception("adapters could not be looked after")
                busy = bool(self._keeper.waits)
                with contextlib.suppress(TimeoutError):
                    # Not wait_for, which may keep to itself that this task was cancelled.
                    async with asyncio.timeout(_HURRY_S if busy else _LOOK_S):
                        await self._hurry.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _look(self) -> None:
        now_s = self._clock()
        uses, self._uses = self._uses, {}
        self._keeper.demand(uses, self._all_waiting(now_s), now_s)
        for change in self._keeper.decide(now_s):
            task = asyncio.get_running_loop().create_task(self._perform(change))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _all_waiting(self, now_s: float) -> dict[str, int]:
        total: dict[str, int] = {}
        for waiting in self._waiting.values():
            for name, count in waiting.items():
                total[name] = total.get(name, 0) + count
        for name, at_s in list(self._asked.items()):
            if now_s - at_s > _UNASKED_S:
                del self._asked[name]
            else:
                total.setdefault(name, 1)
        return total

    async def _perform(self, change: AdapterChange) -> None:
        """Make a change; the keeper and the workers are told, however it ends."""
        replica = change.replica
        errors: Mapping[str, str] = dict.fromkeys(change.load, "the gateway is shutting down")
        took_s = 0.0
        try:
            going = self._going.get(replica, frozenset()) - frozenset(change.load)
            outdated = self._keeper.places[replica].outdated  # by a reload a moment ago
            self._going[replica] = going | outdated | frozenset(change.unload)
            if change.unload:
                self._told_anew(replica)
                await asyncio.sleep(_SETTLE_S)
            started_s = self._clock()
            errors = await self._change(change)
            took_s = (self._clock() - started_s) / max(1, len(change.load))
        finally:
            now_s = self._clock()
            self._keeper.changed(change, errors, took_s, now_s)
            if change.load and len(errors) == len(change.load):  # what was to make room stays
                self._going[replica] = frozenset(self._keeper.places[replica].stale)
                self._told_anew(replica)
            self.metrics.changed(change, errors, took_s)
            for name in change.load:
                self._asked.pop(name, None)
            self._look_again(replica)
            self._tell_failed(errors, now_s)
            self._hurry.set()

    async def _change(self, change: AdapterChange) -> Mapping[str, str]:
        """By adapter that could not be loaded: why."""
        errors: dict[str, str] = {}
        files = []
        for name in change.load:
            try:
                adapter = self._catalogue[name]
                path = await asyncio.to_thread(self._locate, change.replica, adapter)
                files.append(AdapterFile(name, path))
            except Exception as error:
                if not isinstance(error, MileageError | KeyError):
                    _log.exception("the file of adapter %s could not be had", name)
                errors[name] = str(error) or type(error).__name__
        try:
            async with asyncio.timeout(self._config.load_timeout_s):
                errors |= await self._loaders[change.replica].change(files, change.unload)
        except TimeoutError:
            what = "loaded" if change.load else "unloaded"
            said = f"was not {what} within {self._config.load_timeout_s:.0f} s"
            errors |= dict.fromkeys(change.load or change.unload, said)
        except Exception as error:
            if not isinstance(error, MileageError):
                _log.exception("adapters of %s could not be changed", change.replica)
            errors |= dict.fromkeys(change.load or change.unload, str(error))
        if not change.load and errors:  # they may still be there
            stale = self._keeper.places[change.replica].stale
            self._going[change.replica] = frozenset(stale)
            self._told_anew(change.replica)
        what = "loaded" if change.load else "unloaded"
        for name, why in errors.items():
            _log.warning("adapter %s was not %s on %s: %s", name, what, change.replica, why)
        return errors

    def _tell_failed(self, errors: Iterable[str], now_s: float) -> None:
        for name in errors:
            refusal = self._keeper.refusal(name, now_s)
            if refusal is not None:
                retry_s = max(_RETRY_S, refusal.retry_after_s)
                self._deliver(LoadFailed(name, refusal.reason, retry_s))

    def _tell_loadable(self, event: ReplicaUp) -> None:
        """Tell the workers which adapters the replica loads when asked, where that has changed."""
        served = set(event.models)
        names = tuple(each.name for each in self._catalogue.values() if each.base in served)
        if self._loadable.get(event.replica, ()) != names:
            self._loadable[event.replica] = names
            self._deliver(Loadable(event.replica, names))
