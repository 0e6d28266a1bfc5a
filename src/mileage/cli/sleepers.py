"""Sleepers: replicas that can sleep: models of our own, and engines with a sleep level."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import psutil

from mileage.cli.config import Config
from mileage.cli.own_engine import own_engine
from mileage.cli.time_zone import zone_of
from mileage.core.events import Event
from mileage.core.model_loader import ModelLoader
from mileage.engines.config import CPU
from mileage.engines.embedded.engine import EmbeddedEngine, EmbeddedStatus
from mileage.engines.embedded.model_loader import EmbeddedLoader
from mileage.engines.remote import RemoteEngine
from mileage.engines.vllm_sleep import VllmLoader
from mileage.gateway.admin.fleet import ReplicaHealth
from mileage.gateway.model_desk import ModelDesk, ReplicaWatcher
from mileage.gateway.model_seat import ModelStatus
from mileage.ledger.replica_clock import ReplicaSeen
from mileage.ledger.replica_time import ReplicaState

__all__ = ["Sleepers"]

_STATES: Mapping[str, ReplicaState] = {"loaded": "up", "loading": "warmup", "unloading": "up"}


class Sleepers:
    """Makes the engines of `[[models]]`, and has the desk decide when each replica sleeps.

    `paths` are the files of the models by name. `tell` passes an event to the workers, whose
    processes `live` tells; `changed` is called when a model comes or goes.
    """

    def __init__(
        self,
        config: Config,
        paths: Mapping[str, Path],
        state_directory: Path,
        *,
        tell: Callable[[Event], None],
        watcher: ReplicaWatcher,
        live: Callable[[], Iterable[int]],
        changed: Callable[[], None],
    ) -> None:
        self._paths, self._state_directory, self._changed = paths, state_directory, changed
        self._own: dict[str, EmbeddedEngine] = {}
        self._loaders: dict[str, EmbeddedLoader] = {}
        self._config = config
        zone = zone_of(config.idle.time_zone, "idle.time_zone")
        self.desk = ModelDesk(config.idle, zone, tell=tell, watcher=watcher, live=live)
        self.engines: tuple[RemoteEngine, ...] = ()
        """Those of `[[models]]`, loaded or not."""

    async def start(self, parts: contextlib.AsyncExitStack) -> None:
        """Give each model of `[[models]]` its address; none is loaded."""
        engines = []
        for model in self._config.models:
            name, path = model.replica, self._paths[model.replica]
            engine = EmbeddedEngine(
                model,
                model_path=path,
                state_dir=self._state_directory / "models" / name,
                on_change=self._watcher_of(name),
            )
            await engine.prepare()
            parts.push_async_callback(engine.stop, 0.0)
            self._own[name] = engine
            self._loaders[name] = EmbeddedLoader(engine, model, path, _resident_bytes)
            engines.append(own_engine(name, engine))
        self.engines = tuple(engines)

    async def begin(self, engines: Iterable[RemoteEngine]) -> None:
        """Take on all that can sleep, once there are workers to tell."""
        at_start = {model.replica: model.load == "start" for model in self._config.models}
        for engine in engines:
            loader = self._loader(engine)
            if loader is not None:
                await self.desk.add(engine.name, loader, load=at_start.get(engine.name, False))

    def configure(self, config: Config) -> None:
        """When they sleep from now on."""
        self.desk.configure(config.idle, zone_of(config.idle.time_zone, "idle.time_zone"))

    def is_own(self, name: str) -> bool:
        """Whether it is a model of `[[models]]`."""
        return name in self._own

    def sleeps(self, engine: RemoteEngine) -> bool:
        """Whether the engine is one that the desk loads and unloads."""
        return engine.name in self._own or engine.sleep_level is not None

    def engine(self, name: str) -> EmbeddedEngine | None:
        """The engine of a model of our own."""
        return self._own.get(name)

    def pids(self) -> list[int]:
        """Processes of those that are loaded."""
        return [engine.pid for engine in self._own.values() if engine.pid is not None]

    def health(self, engine: RemoteEngine, *, enabled: bool) -> ReplicaHealth | None:
        """A replica that is not loaded, and so not watched; None: it has none."""
        found = self._status(engine.name)
        if found is None:
            return None
        return ReplicaHealth(
            name=engine.name,
            kind=engine.kind,
            url=engine.url,
            enabled=enabled,
            up=False,
            loading=found.state == "loading",
            asleep=found.state != "loading",
            models=found.models,
            reason=f"{found.state}: {found.reason}" if found.reason else found.state,
        )

    def seen(self) -> dict[str, ReplicaSeen]:
        """What each model of our own holds now: asleep it costs nothing."""
        states = {status.replica: status.state for status in self.desk.statuses()}
        return {
            name: ReplicaSeen(_STATES.get(states.get(name, "asleep"), "down"), 1.0, CPU)
            for name in self._own
        }

    def models(self) -> set[str]:
        """Models that are there, or would be loaded."""
        return {model for status in self.desk.statuses() for model in status.models}

    def _status(self, name: str) -> ModelStatus | None:
        return next((each for each in self.desk.statuses() if each.replica == name), None)

    def _loader(self, engine: RemoteEngine) -> ModelLoader | None:
        if engine.name in self._loaders:
            return self._loaders[engine.name]
        level = engine.sleep_level
        return None if level is None else VllmLoader(engine, level)

    def _watcher_of(self, name: str) -> Callable[[EmbeddedStatus], None]:
        def changed(status: EmbeddedStatus) -> None:
            self._changed()
            if status.state == "down":
                self.desk.died(name, status.reason or "for no known reason")

        return changed


def _resident_bytes(pid: int) -> int | None:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None
