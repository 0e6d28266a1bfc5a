"""Replicas: the engines of a gateway: found or started, watched, and in use or not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from mileage.cli.config import Config
from mileage.cli.down_log import DownLog
from mileage.cli.engine_knobs import controlled
from mileage.cli.first_checks import first_checks
from mileage.cli.own_engine import own_engine
from mileage.cli.replica_move import Move, move_between, target_of
from mileage.cli.sleepers import Sleepers
from mileage.cli.waking import Waking
from mileage.core.events import Event, Loadable, Observed, ReplicaDown, ReplicaUp
from mileage.core.replica import Adapter, ReplicaView
from mileage.engines.config import CPU, EmbeddedConfig
from mileage.engines.embedded.engine import EmbeddedEngine, EmbeddedStatus
from mileage.engines.embedded.resolve import served_name
from mileage.engines.remote import RemoteEngine, resolve_all
from mileage.gateway.adapter_desk import AdapterDesk
from mileage.gateway.admin.fleet import ReplicaHealth
from mileage.gateway.knob_desk import KnobDesk
from mileage.ledger.replica_clock import ReplicaSeen
from mileage.ledger.replica_time import ReplicaState
from mileage.scrape.cpu import CpuSource
from mileage.scrape.poller import Poller
from mileage.scrape.target import PollStatus

__all__ = ["EMBEDDED", "Replicas"]

_DISABLED = "disabled by the operator"
_MOVED = "its address has changed and was not found to be up yet"
EMBEDDED = "embedded"
"""Name of the engine of our own."""
_EMBEDDED_GRACE_S = 5.0
_log = logging.getLogger(__name__)


class Replicas:
    """Finds or starts the engines, watches them, and passes on what the workers are to know.

    `model_path` is the embedded engine's model; None where engines are configured. `tell` passes
    an event to the workers, as soon as there are any; `observed` takes every observation, also of
    a replica that is not in use; `forget` gets the name of one that is no more; `changed` is called
    when `seen` may say something else. `live` are the workers' processes.
    """

    def __init__(
        self,
        model_path: Path | None,
        state_directory: Path,
        *,
        sleepers: Callable[[Replicas], Sleepers],
        tell: Callable[[Event], None],
        observed: Callable[[ReplicaView], None],
        forget: Callable[[str], None],
        changed: Callable[[], None],
        live: Callable[[], Iterable[int]],
    ) -> None:
        self._model_path, self._state_directory = model_path, state_directory
        self._tell, self._observed, self._forget = tell, observed, forget
        self._changed = changed
        self.sleepers = sleepers(self)
        """Those of them that can sleep."""
        self._waking = Waking()
        self._woken: set[str] = set()
        self.knobs = KnobDesk(live)
        """Those whose own limits are set."""
        self._disabled: set[str] = set()
        self._downs = DownLog()
        self.engines: tuple[RemoteEngine, ...] = ()
        """Those in use, in the order of the configuration."""
        self._embedded: EmbeddedEngine | None = None
        self._adapters: tuple[Adapter, ...] = ()
        self._held: tuple[Adapter, ...] = ()
        """Adapters that the engine of our own has loaded for requests that name them."""
        self.desk: AdapterDesk | None = None
        """What adapters are loaded by, and has a say in what workers hear of them."""
        self._poller = Poller(
            emit=self._heard,
            clock=time.monotonic,
            rng=random.Random(os.urandom(8)),  # noqa: S311 -- jitter
        )
        self.up = asyncio.Event()
        """Set when the first one is up."""
        self.end_at_once = False
        """End the embedded engine without the time to finish."""

    # --- life ---------------------------------------------------------------------------------

    async def start(self, config: Config, parts: contextlib.AsyncExitStack) -> None:
        """Find the engines, or start the one of our own; `parts` ends what was started."""
        self._poller.warm_up = config.warm_up
        if self._model_path is None:
            await self.sleepers.start(parts)
            self.engines = (*resolve_all(config.engines, os.environ), *self.sleepers.engines)
        else:
            self.engines = (await self._start_embedded(config, self._model_path, parts),)
        for engine in self.engines:
            if not self.sleepers.sleeps(engine):
                self._poller.add(target_of(engine), busy=self._cpu(engine.name))

    async def watch(self, parts: contextlib.AsyncExitStack) -> None:
        """Begin the health checks."""
        await self._poller.start()
        parts.push_async_callback(self._poller.stop)
        parts.push_async_callback(self.sleepers.desk.stop)
        parts.push_async_callback(self._waking.stop)
        await self.knobs.configure(controlled(self.engines))
        parts.push_async_callback(self.knobs.stop)
        await self.sleepers.begin(self.engines)
        if self.sleepers.desk.statuses():
            self.up.set()  # what sleeps takes requests

    async def _start_embedded(
        self, config: Config, model_path: Path, parts: contextlib.AsyncExitStack
    ) -> RemoteEngine:
        embedded = self._embedded = EmbeddedEngine(
            config.embedded,
            model_path=model_path,
            state_dir=self._state_directory,
            on_change=self._embedded_changed,
        )
        self._adapters = _adapters(config.embedded)
        self._changed()
        await embedded.start()
        parts.push_async_callback(self._stop_embedded, embedded)
        return own_engine(EMBEDDED, embedded)

    @property
    def embedded(self) -> EmbeddedEngine | None:
        """The engine of our own, where there is one."""
        return self._embedded

    async def move_embedded(self, held: tuple[Adapter, ...]) -> None:
        """The engine of our own is at another address, with these adapters."""
        assert self._embedded is not None
        self._held = held
        engine = own_engine(EMBEDDED, self._embedded)
        self.engines = (engine,)
        await self._poller.remove(EMBEDDED)
        self._poller.add(target_of(engine), busy=self._cpu(EMBEDDED))

    def _cpu(self, name: str) -> CpuSource | None:
        """What tells how busy an engine of our own is; remote ones name theirs."""
        engine = self._embedded or self.sleepers.engine(name)
        if engine is None:
            return None
        return CpuSource(lambda: engine.pid, engine.threads, clock=time.monotonic)

    async def _stop_embedded(self, embedded: EmbeddedEngine) -> None:
        await embedded.stop(0.0 if self.end_at_once else _EMBEDDED_GRACE_S)
        self._embedded = None
        self._changed()

    # --- other engines ------------------------------------------------------------------------

    def plan(self, config: Config) -> Move:
        """How to get to the engines of another configuration; our own engine stays what it is.

        Raises ConfigError where one of them cannot be called.
        """
        if self._model_path is not None:
            return Move(self.engines, self.engines, (), ())
        engines = (*resolve_all(config.engines, os.environ), *self.sleepers.engines)
        return move_between(self.engines, engines)

    async def leave(self, move: Move) -> None:
        """Watch no more what is left; from here on `engines` are the others."""
        urls = {engine.name: engine.url for engine in move.engines}
        for name in move.left:
            await self.unwatch(name)
            await self.sleepers.desk.remove(name)
            await self._waking.leave(name)
            if name not in urls:
                self._disabled.discard(name)
                self._forget(name)
        self.engines = move.engines
        self._changed()

    async def join(self, move: Move) -> None:
        """Watch what is new. One at another address is used when that was found to be up.

        What fails of one engine is logged, and keeps nobody from the rest: the workers have the
        new configuration already.
        """
        before = {engine.name: engine for engine in move.before}
        for engine in move.joined:
            try:
                await self._join(engine, before.get(engine.name))
            except Exception:
                _log.exception("engine %s could not be taken on", engine.name)
        try:
            await self.knobs.configure(controlled(move.engines))
        except Exception:
            _log.exception("the engines' own limits could not be taken on")

    async def checked(self, move: Move, timeout_s: float) -> None:
        """Wait until what is new was looked at once, for so long at the most."""
        await first_checks({e.name for e in move.joined}, self._poller.status, timeout_s)

    async def _join(self, engine: RemoteEngine, before: RemoteEngine | None) -> None:
        if before is not None and before.url != engine.url:
            self._forget(engine.name)
            self._pass_on(ReplicaDown(engine.name, _MOVED))
        if self.sleepers.sleeps(engine):
            await self.sleepers.begin((engine,))
        elif not self._waking.begin(engine, before, partial(self._awake, engine)):
            self._poller.add(target_of(engine))

    def _awake(self, engine: RemoteEngine) -> None:
        self._woken.add(engine.name)
        self._poller.add(target_of(engine))

    # --- those that sleep ---------------------------------------------------------------------

    def watch_again(self, name: str) -> None:
        """It has been loaded: its health says something from now on."""
        self._changed()
        engine = next((each for each in self.engines if each.name == name), None)
        if engine is not None and name not in {status.name for status in self._poller.status()}:
            self._poller.add(target_of(engine), busy=self._cpu(name))

    async def unwatch(self, name: str) -> None:
        """It is unloaded, or left: its health says nothing any more."""
        self._changed()
        with contextlib.suppress(KeyError):
            await self._poller.remove(name)
        self._downs.forget(name)

    # --- what is asked of them ----------------------------------------------------------------

    def set_enabled(self, name: str, enabled: bool) -> bool:
        """Use the replica, or leave it alone; False where none has this name."""
        if all(name != engine.name for engine in self.engines):
            return False
        if enabled:
            self._disabled.discard(name)
            self.tell_again(name)
        else:
            self._disabled.add(name)
            self._pass_on(ReplicaDown(name, _DISABLED))
        self.sleepers.desk.enable(name, enabled)
        return True

    def is_enabled(self, name: str) -> bool:
        """Whether the operator has not disabled it."""
        return name not in self._disabled

    def health(self) -> list[ReplicaHealth]:
        """Every replica as the poller sees it."""
        known = {status.name: status for status in self._poller.status()}
        return [
            ReplicaHealth(
                name=status.name,
                kind=status.kind,
                url=status.url,
                enabled=status.name not in self._disabled,
                up=None if status.checked_s is None else status.state == "up",
                loading=status.loading,
                models=status.models,
                adapters=(*self._adapters, *self._held) or status.adapters,
                reason=_DISABLED if status.name in self._disabled else status.health_error,
                checked_s=status.checked_s,
                version=status.version,
                observation_error=status.observation_error,
            )
            for status in (known[e.name] for e in self.engines if e.name in known)
        ] + [
            asleep
            for engine in self.engines
            if engine.name not in known
            and (asleep := self._unwatched(engine, enabled=engine.name not in self._disabled))
        ]

    def _unwatched(self, engine: RemoteEngine, *, enabled: bool) -> ReplicaHealth | None:
        source = self._waking if engine.name in self._waking else self.sleepers
        return source.health(engine, enabled=enabled)

    def seen(self) -> dict[str, ReplicaSeen]:
        """What each replica holds now; without those of which nothing is known yet."""
        embedded = self._embedded
        if self._model_path is not None:
            if embedded is None:
                return {}
            own: ReplicaState = "down" if embedded.pid is None else "up"
            if embedded.loading or not self.engines:  # it is started for the first time
                own = "warmup"
            return {EMBEDDED: ReplicaSeen(own, 1.0, CPU)}
        known = {status.name: _state(status) for status in self._poller.status()}
        return {
            engine.name: ReplicaSeen(state, engine.gpus, engine.gpu)
            for engine in self.engines
            if (state := known.get(engine.name)) is not None
        } | self.sleepers.seen()

    def models(self) -> set[str]:
        """Models that they serve."""
        held = {adapter.model for adapter in self._held} | self.sleepers.models()
        return held | {model for status in self._poller.status() for model in status.models}

    def pids(self) -> list[int]:
        """Processes of embedded engines."""
        pid = self._embedded.pid if self._embedded is not None else None
        return [pid] if pid is not None else self.sleepers.pids()

    # --- what is heard of them ----------------------------------------------------------------

    def _heard(self, event: Event) -> None:
        """An event of the poller's."""
        if isinstance(event, Observed):
            event = Observed(self.knobs.complete(event.view))
            self._observed(event.view)
        elif isinstance(event, ReplicaUp | ReplicaDown):
            if self.sleepers.desk.is_resting(event.replica):
                return  # it is being unloaded
            self._changed()
            if not (self._embedded or self.sleepers.engine(event.replica)):
                self._downs.heard(event)  # those of our own say themselves why they are down
        if _replica_of(event) not in self._disabled or isinstance(event, Observed):
            self._pass_on(event)
        if isinstance(event, ReplicaUp):
            self.up.set()
            self.knobs.up(event.replica)
            self.sleepers.desk.up(event.replica, event.models)
            if event.replica in self._woken:  # what waited for it has gone there
                self._woken.discard(event.replica)
                adapters = () if self.desk is None else self.desk.loadable(event.replica)
                self._tell(Loadable(event.replica, adapters))

    def _pass_on(self, event: Event) -> None:
        """Tell the workers, who are to hear of adapters what their desk wants them to."""
        event = self._complete(event)
        if self.desk is not None:
            if isinstance(event, ReplicaUp):
                event = self.desk.up(event)
            elif isinstance(event, ReplicaDown):
                self.desk.down(event.replica)
        self._tell(event)

    def _complete(self, event: Event) -> Event:
        """With what the engine of our own does not tell by itself."""
        if isinstance(event, ReplicaUp) and (self._adapters or self._held):
            models = (*event.models, *(adapter.model for adapter in self._held))
            return ReplicaUp(event.replica, models, (*self._adapters, *self._held))
        return event

    def tell_again(self, name: str) -> None:
        """Tell the workers what the poller knows of a replica, unless it is disabled."""
        if name not in self._disabled:
            for event in self._poller.snapshot():
                if _replica_of(event) == name:
                    self._pass_on(event)

    def look_again(self, name: str) -> None:
        """Ask a replica at once what it serves now."""
        if any(name == status.name for status in self._poller.status()):
            self._poller.check_now(name)

    def _embedded_changed(self, status: EmbeddedStatus) -> None:
        self._changed()
        if not self.engines:
            return  # it has not been up yet
        if status.state == "up":
            # Where it was back before a check failed, the poller has nothing new to tell.
            self.tell_again(EMBEDDED)
            self._poller.check_now(EMBEDDED)
        else:
            _log.warning("the embedded engine is down: %s", status.reason)
            self._heard(ReplicaDown(EMBEDDED, status.reason or "the engine is down"))


def _state(status: PollStatus) -> ReplicaState | None:
    """What a remote replica holds; None where no check has come to a verdict yet."""
    if status.loading:
        return "warmup"
    return None if status.state == "starting" else status.state


def _adapters(config: EmbeddedConfig) -> tuple[Adapter, ...]:
    """Of the engine of our own, which runs every request with all the adapters that it has."""
    if not config.lora:
        return ()
    name = served_name(config)
    return (Adapter(name, "+".join(Path(path).stem for path in config.lora), name),)


def _replica_of(event: Event) -> str | None:
    if isinstance(event, Observed):
        return event.view.replica
    return event.replica if isinstance(event, ReplicaUp | ReplicaDown) else None
