"""AdapterDesk: the supervisor's side of LoRA adapters: has them loaded, and tells the workers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from pathlib import PurePath

from mileage.core.adapter_loader import AdapterFile, AdapterLoader
from mileage.core.errors import EngineError, MileageError
from mileage.core.events import Event, LoadFailed, ReplicaUp
from mileage.gateway.adapter_fetches import AdapterFetches
from mileage.gateway.adapter_metrics import AdapterMetrics
from mileage.gateway.adapter_state import AdapterState, AdapterStates, PlacesState
from mileage.gateway.adapter_view import AdapterView, without_paths
from mileage.policy.residency.adapters import AdapterConfig, LoraConfig
from mileage.policy.residency.keeper import AdapterChange, AdapterKeeper

__all__ = ["AdapterDesk"]

_LOOK_S = 1.0
_HURRY_S = 0.05
"""So often it is looked while requests wait."""
_SETTLE_S = 0.2
"""From when workers have heard that an adapter goes until it does: what they have sent is there."""
_HEARD_S = 10.0
"""So long it is waited for workers to hear that."""
_CHECK_S = 1.0
"""A replica that was asked what it serves has told by then."""
_UNASKED_S = 3.0
"""A worker that said that requests wait is believed so long without a report that has them."""
_RETRY_S = 1.0
_log = logging.getLogger(__name__)


class AdapterDesk:
    """Drives an AdapterKeeper: all events of replicas pass through it, and what workers report.

    `deliver` tells all workers an event; `heard` waits until they have taken in what they were told
    so far, for so many seconds at the most, and is false where some have not. `told_anew` is asked
    to tell the workers of a replica again, `look_again` to ask the replica what it serves. `locate`
    gives the path of an adapter for a replica's engine, at once; None: it is to be fetched first.
    `fetch` does that: it runs in a thread.
    """

    def __init__(
        self,
        *,
        deliver: Callable[[Event], None],
        heard: Callable[[float], Awaitable[bool]],
        told_anew: Callable[[str], None],
        look_again: Callable[[str], None],
        locate: Callable[[str, AdapterConfig], str | None],
        fetch: Callable[[AdapterConfig], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deliver, self._heard = deliver, heard
        self._told_anew, self._look_again = told_anew, look_again
        self._locate, self._fetches = locate, AdapterFetches(fetch)
        self._clock = clock
        self._config = LoraConfig()
        self._catalogue: dict[str, AdapterConfig] = {}
        self._keeper = AdapterKeeper(self._config)
        self._loaders: dict[str, AdapterLoader] = {}
        self._view = AdapterView(self._keeper, deliver)
        self._waiting: dict[int, Mapping[str, int]] = {}
        self._asked: dict[str, float] = {}
        self._uses: dict[str, int] = {}
        self._crowded: dict[str, float] = {}
        """Adapters that there is no slot for, and when workers were told so."""
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
        self._view.configure(self._catalogue, self._loaders)
        self._hurry.set()

    def withhold(self, adapters: Iterable[AdapterConfig]) -> None:
        """What is another adapter among these, or none, is not used from now on: to be told before
        workers work by a configuration with these, which may give its name to other tenants."""
        self._view.withhold({adapter.name: adapter for adapter in adapters})
        for replica in self._loaders:
            self._told_anew(replica)

    def up(self, event: ReplicaUp) -> ReplicaUp:
        """A replica is up: what workers are to be told of it, without what is being unloaded, and
        without adapters that nobody has configured."""
        loader = self._loaders.get(event.replica)
        if loader is None:
            return without_paths(event)
        shown = self._view.up(event, loader.slots, self._clock())
        self._hurry.set()
        return shown

    def loadable(self, replica: str) -> tuple[str, ...]:
        """What workers were told that it loads when asked."""
        return self._view.loadable(replica)

    def down(self, replica: str) -> None:
        """A replica is down."""
        self._keeper.replica_down(replica)

    def wanted(self, model: str) -> None:
        """Requests of a worker have begun to wait for a model."""
        if model not in self._catalogue:
            return
        refusal = self._keeper.refusal(model, self._clock())
        if refusal is not None:
            self._refuse(model, refusal.reason, refusal.retry_after_s)
            return
        self._asked[model] = self._clock()
        for replica in self._keeper.holders(model):
            self._begin(self._check(replica))
        self._hurry.set()

    async def _check(self, replica: str) -> None:
        """A worker waits for what the replica should have: it has lost it, or has just got it."""
        self._look_again(replica)
        await asyncio.sleep(_CHECK_S)
        self._told_anew(replica)

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
                busy = bool(self._keeper.waiting)
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
        self._refuse_crowded_out(now_s)
        for change in self._keeper.decide(now_s):
            self._begin(self._perform(change))

    def _refuse_crowded_out(self, now_s: float) -> None:
        """Nobody waits for a slot that pinned adapters keep for ever."""
        for name in tuple(self._keeper.waiting):
            refusal = self._keeper.crowded_out(name)
            # Reports are late: they tell of those that were refused for a while.
            if refusal is None or now_s - self._crowded.get(name, -math.inf) < _RETRY_S:
                continue
            self._crowded[name] = now_s
            self._refuse(name, refusal.reason, refusal.retry_after_s)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
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
        files, failed, absent = self._files(change)
        if absent:
            self._put_off(change, absent)
            return
        try:
            self._view.change(replica, change.load, change.unload)
            if change.unload:
                self._told_anew(replica)
                all_heard = await self._heard(_HEARD_S)
                if not all_heard and change.reason == "changed":
                    # What comes under the name may be for others: who has not heard lets them in.
                    raise EngineError(replica, "some workers have not heard yet that it goes")
                await asyncio.sleep(_SETTLE_S)
            started_s = self._clock()
            errors = await self._change(change, files, failed)
            took_s = (self._clock() - started_s) / max(1, len(change.load))
        except MileageError as error:
            errors = dict.fromkeys(change.load or change.unload, str(error))
            _log.warning("adapters of %s stay as they are for now: %s", replica, error)
        finally:
            self._end(change, errors, took_s)

    def _end(self, change: AdapterChange, errors: Mapping[str, str], took_s: float) -> None:
        now_s = self._clock()
        self._keeper.changed(change, errors, took_s, now_s)
        if change.load and len(errors) == len(change.load):  # what was to make room stays
            self._view.stay(change.replica)
            self._told_anew(change.replica)
        self.metrics.changed(change, errors, took_s)
        for name in change.load:
            self._asked.pop(name, None)
        self._look_again(change.replica)
        self._tell_failed(errors, now_s)
        self._hurry.set()

    def _files(
        self, change: AdapterChange
    ) -> tuple[list[AdapterFile], dict[str, str], list[AdapterConfig]]:
        """Those of a change; by adapter why there is none; and those that are to be fetched."""
        files, errors, absent = [], {}, []
        for name in change.load:
            try:
                adapter = self._catalogue[name]
                path = self._locate(change.replica, adapter)
                if path is None:
                    absent.append(adapter)
                else:
                    files.append(AdapterFile(name, path))
            except Exception as error:
                if not isinstance(error, MileageError | KeyError):
                    _log.exception("the file of adapter %s could not be had", name)
                errors[name] = str(error) or type(error).__name__
        return files, errors, absent

    def _put_off(self, change: AdapterChange, absent: list[AdapterConfig]) -> None:
        """Fetch these first; meanwhile the replica loads others."""
        self._keeper.put_off(change, [adapter.path for adapter in absent])
        for adapter in absent:
            self._begin(self._fetch(change.replica, adapter))
        self._hurry.set()

    async def _fetch(self, replica: str, adapter: AdapterConfig) -> None:
        error: str | None = "the gateway is shutting down"
        try:
            await self._fetches.fetch(adapter, self._config.load_timeout_s)
            error = None
        except Exception as raised:
            if not isinstance(raised, MileageError):
                _log.exception("the file of adapter %s could not be fetched", adapter.name)
            error = str(raised) or type(raised).__name__
            _log.warning("adapter %s was not fetched: %s", adapter.name, error)
        finally:
            now_s = self._clock()
            self._keeper.fetched(replica, adapter, error, now_s)
            if error is not None:
                self._asked.pop(adapter.name, None)
                self._tell_failed((adapter.name,), now_s)
            self._hurry.set()

    async def _change(
        self, change: AdapterChange, files: list[AdapterFile], failed: Mapping[str, str]
    ) -> Mapping[str, str]:
        """By adapter that could not be loaded: why."""
        errors = dict(failed)
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
            self._view.stay(change.replica)
            self._told_anew(change.replica)
        what = "loaded" if change.load else "unloaded"
        for name, why in errors.items():
            _log.warning("adapter %s was not %s on %s: %s", name, what, change.replica, why)
        return errors

    # --- what clients are told ----------------------------------------------------------------

    def _tell_failed(self, errors: Iterable[str], now_s: float) -> None:
        for name in errors:
            refusal = self._keeper.refusal(name, now_s)
            if refusal is not None:
                self._refuse(name, refusal.reason, max(_RETRY_S, refusal.retry_after_s))

    def _refuse(self, name: str, reason: str, retry_after_s: float) -> None:
        """Have the workers refuse who waits for it; where its file is on a machine of ours is
        nothing for clients."""
        adapter = self._catalogue.get(name)
        if adapter is not None and not adapter.path.startswith("hf:"):
            reason = reason.replace(adapter.path, PurePath(adapter.path).name or name)
        self._deliver(LoadFailed(name, reason, retry_after_s))
