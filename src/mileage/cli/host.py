"""Host: puts the parts of `mileage serve` together, and takes them apart in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from mileage.cli.config import Config, ledger_directory, state_directory
from mileage.cli.worker import command
from mileage.core.events import Event, Observed, ReplicaDown, ReplicaUp
from mileage.dashboard.assets import load_assets
from mileage.engines.config import EngineConfig
from mileage.engines.embedded.engine import EmbeddedEngine, EmbeddedStatus
from mileage.engines.remote import RemoteEngine, resolve, resolve_all
from mileage.gateway.admin.app import AdminApp
from mileage.gateway.admin.fleet import FleetState, LedgerStatus, ReplicaHealth
from mileage.gateway.admin.server import AdminServer, serve_admin
from mileage.gateway.admin.token import resolve_token, token_path
from mileage.gateway.config import GatewayConfig, Upstream
from mileage.gateway.supervisor import Supervisor, bind
from mileage.scrape.poller import Poller
from mileage.scrape.target import PollTarget
from mileage.storage.feeder import Feeder
from mileage.wire.url import display_url

__all__ = ["Host", "Listening"]

_DISABLED = "disabled by the operator"
_EMBEDDED_GRACE_S = 5.0
_EMBEDDED_SCRAPE_S = 2.0
_log = logging.getLogger(__name__)


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running gateway is to be found; nothing here is secret.

    `admin_token_file` holds the admin token; None where the configuration does, or without an
    admin plane.
    """

    url: str
    admin_url: str | None
    admin_token_file: str | None
    ledger: str
    models: list[str]
    pid: int
    worker_pids: list[int]
    engine_pids: list[int]


class Host(FleetState):
    """A gateway with all that belongs to it: workers, engines, health checks, ledger, admin plane.

    `model_path` is the embedded engine's model; None where engines are configured. `log_level` is
    that of the workers.
    """

    def __init__(
        self, config: Config, model_path: Path | None, *, log_level: str = "warning"
    ) -> None:
        super().__init__()
        self._log_level = log_level
        self._config = config
        self._model_path = model_path
        self._state_directory = state_directory()
        self._ledger = ledger_directory(config.ledger)
        self._disabled: set[str] = set()
        self._kinds: dict[str, str] = {}
        self._stop_asked = asyncio.Event()
        self._at_once = False
        self._up = asyncio.Event()
        self._poller = Poller(
            emit=self._heard,
            clock=time.monotonic,
            rng=random.Random(os.urandom(8)),  # noqa: S311 -- jitter
        )
        self._embedded: EmbeddedEngine | None = None
        self._supervisor: Supervisor | None = None
        self._feeder: Feeder | None = None

    async def run(self, ready: Callable[[Listening], None]) -> None:
        """Serve until asked to stop; `ready` is called when the first engine is up.

        Raises MileageError where a part cannot be started; all that was started is then ended, as
        it is where the stop is asked for while the parts start.
        """
        config = self._config
        async with contextlib.AsyncExitStack() as parts:
            sockets = bind(config.server)
            for sock in sockets:
                parts.callback(sock.close)
            self._feeder = feeder = Feeder(
                self._ledger, retention_days=config.ledger.retention_days
            )
            parts.push_async_callback(asyncio.to_thread, feeder.stop)
            feeder.start()
            admin = await self._start_admin(parts)
            if await self._unless_stopped(self._start_serving(sockets, parts)):
                if await self._unless_stopped(self._up.wait()):
                    host, port = sockets[0].getsockname()[:2]
                    ready(self._listening(host, port, admin))
                await self._stop_asked.wait()
                assert self._supervisor is not None
                self._supervisor.drain()
                await self._supervisor.wait()

    def stop(self) -> None:
        """Drain, then end; asked for a second time: end at once."""
        if self._stop_asked.is_set():
            self._at_once = True
            if self._supervisor is not None:
                self._supervisor.kill()
        self._stop_asked.set()

    # --- what the admin plane asks ------------------------------------------------------------

    def drain(self) -> None:
        """Finish what is in flight, then exit."""
        self._stop_asked.set()

    def set_replica(self, name: str, enabled: bool) -> bool:
        """Use the replica, or leave it alone."""
        if name not in self._kinds:
            return False
        if enabled:
            self._disabled.discard(name)
            self._tell_again(name)
        else:
            self._disabled.add(name)
            self._deliver(ReplicaDown(name, _DISABLED))
        return True

    def replica_health(self) -> list[ReplicaHealth]:
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
                observation_error=status.scrape_error,
            )
            for status in self._poller.status()
        ]

    def ledger_status(self) -> LedgerStatus | None:
        """The feeder's state."""
        if self._feeder is None:
            return None
        status = self._feeder.status()
        return LedgerStatus(
            ok=status.error is None,
            error=status.error or status.damage,
            rows_total=status.rows_total,
            lag_bytes=status.lag_bytes,
            lost_total=status.lost_total,
            refused_total=status.refused_total,
            unwritten_total=status.unwritten_total,
            damaged_total=status.damaged_total,
        )

    def engine_pids(self) -> list[int]:
        """The embedded engine's process."""
        pid = self._embedded.pid if self._embedded is not None else None
        return [pid] if pid is not None else []

    def config_public(self) -> dict[str, Any]:
        """The configuration without secrets: of keys their number, of URLs what is public."""
        public: dict[str, Any] = msgspec.to_builtins(self._config)
        public["admin"].pop("token")
        tenants = self._config.tenants
        public["tenants"] = {name: {"keys": len(t.key_hashes)} for name, t in tenants.items()}
        for engine in public["engines"]:
            for key in ("url", "metrics_url"):
                if engine[key] is not None:
                    engine[key] = display_url(engine[key])
        return public

    # --- parts --------------------------------------------------------------------------------

    async def _unless_stopped(self, step: Coroutine[Any, Any, object]) -> bool:
        """Take the step; False where the stop was asked for first, and the step was given up."""
        stop_asked = asyncio.ensure_future(self._stop_asked.wait())
        task = asyncio.ensure_future(step)
        try:
            await asyncio.wait({task, stop_asked}, return_when=asyncio.FIRST_COMPLETED)
            if stop_asked.done():
                return False
            await task
            return True
        finally:
            stop_asked.cancel()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _start_serving(
        self, sockets: list[socket.socket], parts: contextlib.AsyncExitStack
    ) -> None:
        """Start what serves: the engine, if it is ours, the workers, the health checks."""
        engines = await self._start_engines(parts)
        supervisor = self._supervisor = Supervisor(
            self._gateway_config(engines),
            sockets,
            command(self._ledger, self._config.ledger, self._log_level),
            on_report=self.report,
            on_gone=self.worker_gone,
        )
        parts.push_async_callback(supervisor.stop)
        for engine in engines:
            self._poller.add(msgspec.convert(engine, PollTarget, from_attributes=True))
        await supervisor.start()
        await self._poller.start()
        parts.push_async_callback(self._poller.stop)

    async def _start_admin(self, parts: contextlib.AsyncExitStack) -> AdminServer | None:
        config = self._config.admin
        if not config.enabled:
            return None
        token = resolve_token(config, self._state_directory)
        app = AdminApp(self, config, token=token, assets=load_assets())
        server = await serve_admin(app, config)
        parts.push_async_callback(server.stop)
        return server

    async def _start_engines(self, parts: contextlib.AsyncExitStack) -> tuple[RemoteEngine, ...]:
        if self._model_path is None:
            engines = resolve_all(self._config.engines, os.environ)
        else:
            engines = (await self._start_embedded(self._model_path, parts),)
        self._kinds = {engine.name: engine.kind for engine in engines}
        return engines

    async def _start_embedded(
        self, model_path: Path, parts: contextlib.AsyncExitStack
    ) -> RemoteEngine:
        embedded = self._embedded = EmbeddedEngine(
            self._config.embedded,
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

    async def _stop_embedded(self, embedded: EmbeddedEngine) -> None:
        await embedded.stop(0.0 if self._at_once else _EMBEDDED_GRACE_S)

    def _embedded_changed(self, status: EmbeddedStatus) -> None:
        if self._supervisor is None:
            return
        if status.state == "up":
            # Where it was back before a check failed, the poller has nothing new to tell.
            self._tell_again("embedded")
            self._poller.check_now("embedded")
        else:
            _log.warning("the embedded engine is down: %s", status.reason)
            self._heard(ReplicaDown("embedded", status.reason or "the engine is down"))

    def _tell_again(self, name: str) -> None:
        """Tell the workers what the poller knows of a replica, unless it is disabled."""
        if name not in self._disabled:
            for event in self._poller.snapshot():
                if _replica_of(event) == name:
                    self._deliver(event)

    def _gateway_config(self, engines: tuple[RemoteEngine, ...]) -> GatewayConfig:
        config = self._config
        return GatewayConfig(
            server=config.server,
            upstreams=tuple(msgspec.convert(e, Upstream, from_attributes=True) for e in engines),
            aliases=config.aliases,
            key_hashes=config.key_hashes,
            control=config.control(),
            journal=config.journal,
            on_ledger_failure=config.ledger.on_failure,
        )

    def _heard(self, event: Event) -> None:
        """An event of the poller's."""
        if isinstance(event, Observed):
            self.view(event.view)
        elif isinstance(event, ReplicaUp):
            self._up.set()
        if _replica_of(event) not in self._disabled or isinstance(event, Observed):
            self._deliver(event)

    def _deliver(self, event: Event) -> None:
        if self._supervisor is not None:
            self._supervisor.deliver(event)

    def _listening(self, host: str, port: int, admin: AdminServer | None) -> Listening:
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 -- shown only
        shown = f"[{shown}]" if ":" in shown else shown
        scheme = "https" if self._config.server.tls_cert else "http"
        admin_url = admin.url.rstrip("/") if admin is not None else None
        assert self._supervisor is not None
        token_file = token_path(self._config.admin, self._state_directory)
        models = {m for status in self._poller.status() for m in status.models}
        return Listening(
            url=f"{scheme}://{shown}:{port}/v1",
            admin_url=admin_url,
            admin_token_file=str(token_file) if admin_url and token_file else None,
            ledger=str(self._ledger),
            models=sorted(models | set(self._config.aliases)),
            pid=os.getpid(),
            worker_pids=self._supervisor.pids,
            engine_pids=self.engine_pids(),
        )


def _replica_of(event: Event) -> str | None:
    if isinstance(event, Observed):
        return event.view.replica
    return event.replica if isinstance(event, ReplicaUp | ReplicaDown) else None
