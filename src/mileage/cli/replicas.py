"""Replicas: the engines of a gateway: found or started, watched, and in use or not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from mileage.cli.config import Config
from mileage.core.events import Event, Observed, ReplicaDown, ReplicaUp
from mileage.core.replica import ReplicaView
from mileage.engines.config import EngineConfig
from mileage.engines.embedded.engine import EmbeddedEngine, EmbeddedStatus
from mileage.engines.remote import RemoteEngine, resolve, resolve_all
from mileage.gateway.admin.fleet import ReplicaHealth
from mileage.scrape.cpu import CpuSource
from mileage.scrape.poller import Poller
from mileage.scrape.target import PollTarget

__all__ = ["Replicas"]

_DISABLED = "disabled by the operator"
_EMBEDDED_GRACE_S = 5.0
_EMBEDDED_SCRAPE_S = 2.0
_log = logging.getLogger(__name__)


class Replicas:
    """Finds or starts the engines, watches them, and passes on what the workers are to know.

    `model_path` is the embedded engine's model; None where engines are configured. `tell` passes
    an event to the workers, as soon as there are any; `observed` takes every observation, also of
    a replica that is not in use.
    """

    def __init__(
        self,
        model_path: Path | None,
        state_directory: Path,
        *,
        tell: Callable[[Event], None],
        observed: Callable[[ReplicaView], None],
    ) -> None:
        self._model_path, self._state_directory = model_path, state_directory
        self._tell, self._observed = tell, observed
        self._disabled: set[str] = set()
        self._kinds: dict[str, str] = {}
        self._embedded: EmbeddedEngine | None = None
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

    async def start(
        self, config: Config, parts: contextlib.AsyncExitStack
    ) -> tuple[RemoteEngine, ...]:
        """Find the engines, or start the one of our own; `parts` ends what was started."""
        if self._model_path is None:
            engines = resolve_all(config.engines, os.environ)
        else:
            engines = (await self._start_embedded(config, self._model_path, parts),)
        self._kinds = {engine.name: engine.kind for engine in engines}
        for engine in engines:
            target = msgspec.convert(engine, PollTarget, from_attributes=True)
            self._poller.add(target, busy=self._cpu())
        return engines

    async def watch(self, parts: contextlib.AsyncExitStack) -> None:
        """Begin the health checks."""
        await self._poller.start()
        parts.push_async_callback(self._poller.stop)

    async def _start_embedded(
        self, config: Config, model_path: Path, parts: contextlib.AsyncExitStack
    ) -> RemoteEngine:
        embedded = self._embedded = EmbeddedEngine(
            config.embedded,
            model_path=model_path,
            state_dir=self._state_directory,
            on_change=self._embedded_changed,
        )
        await embedded.start()
        parts.push_async_callback(self._stop_embedded, embedded)
        engine = resolve(EngineConfig(kind="llamacpp", name="embedded", url=embedded.url), {})
        return msgspec.structs.replace(
            engine,
            authorization=embedded.authorization,
            connections_max=embedded.connections_max,
            # llama.cpp notices that the client of an answer which is no stream has left only after
            # a second in which it was asked nothing else.
            scrape_interval_s=_EMBEDDED_SCRAPE_S,
            # This version is known to have all of them.
            unsure=(),
        )

    def _cpu(self) -> CpuSource | None:
        """What tells how busy the engine of our own is; remote ones name theirs."""
        engine = self._embedded
        if engine is None:
            return None
        return CpuSource(lambda: engine.pid, engine.threads, clock=time.monotonic)

    async def _stop_embedded(self, embedded: EmbeddedEngine) -> None:
        await embedded.stop(0.0 if self.end_at_once else _EMBEDDED_GRACE_S)

    # --- what is asked of them ----------------------------------------------------------------

    def set_enabled(self, name: str, enabled: bool) -> bool:
        """Use the replica, or leave it alone; False where none has this name."""
        if name not in self._kinds:
            return False
        if enabled:
            self._disabled.discard(name)
            self._tell_again(name)
        else:
            self._disabled.add(name)
            self._tell(ReplicaDown(name, _DISABLED))
        return True

    def health(self) -> list[ReplicaHealth]:
        """Every replica as the poller sees it."""
        return [
            ReplicaHealth(
                name=status.name,
                kind=status.kind,
                url=status.url,
                enabled=status.name not in self._disabled,
                up=None if status.checked_s is None else status.state == "up",
                models=status.models,
                reason=_DISABLED if status.name in self._disabled else status.health_error,
                checked_s=status.checked_s,
                version=status.version,
                observation_error=status.observation_error,
            )
            for status in self._poller.status()
        ]

    def models(self) -> set[str]:
        """Models that they serve."""
        return {model for status in self._poller.status() for model in status.models}

    def pids(self) -> list[int]:
        """The embedded engine's process."""
        pid = self._embedded.pid if self._embedded is not None else None
        return [pid] if pid is not None else []

    # --- what is heard of them ----------------------------------------------------------------

    def _heard(self, event: Event) -> None:
        """An event of the poller's."""
        if isinstance(event, Observed):
            self._observed(event.view)
        elif isinstance(event, ReplicaUp):
            self.up.set()
        if _replica_of(event) not in self._disabled or isinstance(event, Observed):
            self._tell(event)

    def _tell_again(self, name: str) -> None:
        """Tell the workers what the poller knows of a replica, unless it is disabled."""
        if name not in self._disabled:
            for event in self._poller.snapshot():
                if _replica_of(event) == name:
                    self._tell(event)

    def _embedded_changed(self, status: EmbeddedStatus) -> None:
        if "embedded" not in self._kinds:
            return  # it has not been up yet
        if status.state == "up":
            # Where it was back before a check failed, the poller has nothing new to tell.
            self._tell_again("embedded")
            self._poller.check_now("embedded")
        else:
            _log.warning("the embedded engine is down: %s", status.reason)
            self._heard(ReplicaDown("embedded", status.reason or "the engine is down"))


def _replica_of(event: Event) -> str | None:
    if isinstance(event, Observed):
        return event.view.replica
    return event.replica if isinstance(event, ReplicaUp | ReplicaDown) else None
