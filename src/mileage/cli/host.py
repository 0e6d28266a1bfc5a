"""Host: puts the parts of `mileage serve` together, and takes them apart in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from mileage.cli.cache_salt import cache_salt
from mileage.cli.config import Config, journal_directory, state_directory
from mileage.cli.config_source import ConfigSource
from mileage.cli.experiment_file import ExperimentFile
from mileage.cli.gateway_ledger import GatewayLedger
from mileage.cli.gateway_telemetry import GatewayTelemetry
from mileage.cli.ledger_costs import LedgerCosts
from mileage.cli.listening import Listening
from mileage.cli.public_config import public_config
from mileage.cli.reloader import Reloader
from mileage.cli.replicas import Replicas
from mileage.cli.telemetry_process import TelemetryProcess
from mileage.cli.worker import command
from mileage.control.lending import BudgetState
from mileage.core.errors import MileageError
from mileage.core.events import Event
from mileage.dashboard.assets import load_assets
from mileage.engines.remote import RemoteEngine
from mileage.gateway.admin.app import AdminApp
from mileage.gateway.admin.experiment import ExperimentDesk
from mileage.gateway.admin.fleet import FleetState, LedgerStatus, ReplicaHealth
from mileage.gateway.admin.reload import ConfigStatus, Reloaded
from mileage.gateway.admin.server import AdminServer, serve_admin
from mileage.gateway.admin.telemetry import TelemetryStatus
from mileage.gateway.admin.token import resolve_token, token_path
from mileage.gateway.admin.trial import Trial
from mileage.gateway.budget_desk import BudgetDesk
from mileage.gateway.config import GatewayConfig, Upstream
from mileage.gateway.supervisor import Confirmed, Supervisor, bind

__all__ = ["Host"]

_CONFIRM_S = 2.0


class Host(FleetState):
    """A gateway with all that belongs to it: workers, engines, health checks, ledger, admin plane.

    `config` is what was loaded from `source`, which is asked again at every reload. `model_path`
    is the embedded engine's model; None where engines are configured. `log_level` is that of the
    workers.
    """

    def __init__(
        self,
        source: ConfigSource,
        config: Config,
        model_path: Path | None,
        *,
        log_level: str = "warning",
    ) -> None:
        super().__init__()
        self._log_level = log_level
        self._reloader = Reloader(source, config, self._apply)
        self._state_directory = state_directory()
        self._ledger = GatewayLedger(config)
        self._model_path = model_path
        self._stop_asked = asyncio.Event()
        self._replicas = Replicas(
            model_path,
            self._state_directory,
            tell=self._deliver,
            observed=self.view,
            forget=self.forget,
            changed=self._ledger.look,
        )
        self._supervisor: Supervisor | None = None
        self._budgets: BudgetDesk | None = None
        self._experiments: ExperimentDesk | None = None
        self._telemetry: GatewayTelemetry | None = None
        self._serving = False

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
            self._ledger.start(self._replicas.seen, parts)
            admin = await self._start_admin(parts)
            if await self._unless_stopped(self._start_serving(sockets, parts)):
                if await self._unless_stopped(self._replicas.up.wait()):
                    host, port = sockets[0].getsockname()[:2]
                    ready(self._listening(host, port, admin))
                await self._stop_asked.wait()
                assert self._supervisor is not None
                self._supervisor.drain()
                await self._supervisor.wait()

    @property
    def _config(self) -> Config:
        """The configuration in force."""
        return self._reloader.config

    def ask_reload(self) -> None:
        """Read the configuration again; what comes of it is logged."""
        self._reloader.ask()

    def stop(self) -> None:
        """Drain, then end; asked for a second time: end at once."""
        if self._stop_asked.is_set():
            self._replicas.end_at_once = True
            if self._supervisor is not None:
                self._supervisor.kill()
        self._stop_asked.set()

    # --- what the admin plane asks ------------------------------------------------------------

    def drain(self) -> None:
        """Finish what is in flight, then exit."""
        self._stop_asked.set()

    def set_replica(self, name: str, enabled: bool) -> bool:
        """Use the replica, or leave it alone."""
        return self._replicas.set_enabled(name, enabled)

    def replica_health(self) -> list[ReplicaHealth]:
        """Every replica as the poller sees it."""
        return self._replicas.health()

    def ledger_status(self) -> LedgerStatus | None:
        """The feeder's state."""
        return self._ledger.status()

    def telemetry_status(self) -> TelemetryStatus | None:
        """How looking at the engines' GPUs goes."""
        if self._telemetry is None:
            return None
        stored = self._ledger.feeder_status()
        if stored is None:
            return self._telemetry.status()
        return self._telemetry.status(
            dropped_total=stored.gpu_minutes_dropped_total, error=stored.gpu_minutes_error
        )

    def budget_states(self) -> list[BudgetState]:
        """How all budgets stand, in the order of the configuration."""
        return [] if self._budgets is None else self._budgets.states()

    def experiment_desk(self) -> ExperimentDesk | None:
        """What runs experiments; None while the gateway starts."""
        return self._experiments

    def engine_pids(self) -> list[int]:
        """The embedded engine's process."""
        return self._replicas.pids()

    def config_public(self) -> dict[str, Any]:
        """The configuration without secrets: of keys their number, of URLs what is public."""
        return public_config(self._config)

    def config_status(self) -> ConfigStatus:
        """Of the configuration in force."""
        return self._reloader.status()

    async def reload(self) -> Reloaded:
        """Read the configuration again and apply it, or nothing of it."""
        if not self._serving:
            raise MileageError("the gateway is still starting: ask again in a moment")
        return await self._reloader.reload("asked for by the admin plane")

    async def try_settings(self, trial: Trial) -> Reloaded:
        """Put settings in force for a while, over what is written."""
        if not self._serving:
            raise MileageError("the gateway is still starting: ask again in a moment")
        return await self._reloader.try_settings(trial)

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
        await self._replicas.start(self._config, parts)
        self._start_telemetry(parts)
        budgets = self._start_budgets(parts)
        supervisor = self._supervisor = Supervisor(
            self._gateway_config(self._config),
            sockets,
            command(self._ledger.directory, self._config.ledger, self._log_level),
            on_report=self.report,
            on_gone=self.worker_gone,
            budgets=budgets,
        )
        parts.push_async_callback(supervisor.stop)
        self._start_experiments(parts)
        await supervisor.start()
        await self._replicas.watch(parts)
        self._serving = True
        reloading = asyncio.get_running_loop().create_task(self._reloader.run())
        parts.push_async_callback(_end, reloading)

    def _start_telemetry(self, parts: contextlib.AsyncExitStack) -> None:
        """Start what looks at the engines' GPUs; it ends before the feeder does."""
        own = self._model_path is not None
        telemetry = self._telemetry = GatewayTelemetry(
            self._ledger.note_gpu_minutes,
            partial(
                TelemetryProcess,
                host=socket.gethostname(),
                log_level=self._log_level,
                pids=self._replicas.pids,
            ),
            own_engine=own,
        )
        parts.push_async_callback(asyncio.to_thread, telemetry.stop)
        telemetry.configure(self._config.telemetry, self._replicas.engines)

    def _start_experiments(self, parts: contextlib.AsyncExitStack) -> None:
        """Start what runs experiments: before the workers, so that they begin with it."""
        store = ExperimentFile(self._state_directory / "experiment.json")
        experiments = self._experiments = ExperimentDesk(self, self._deliver, store)
        experiments.configure(self._config.experiment)
        parts.push_async_callback(_end, asyncio.get_running_loop().create_task(experiments.run()))

    def _start_budgets(self, parts: contextlib.AsyncExitStack) -> BudgetDesk:
        """Start what lends budgets to the workers."""
        pool = self._ledger.pool(parts)
        budgets = self._budgets = BudgetDesk(self._ledger.spends(), self._tell, pool=pool)
        parts.push_async_callback(budgets.leave)
        self._configure_budgets(self._config)
        parts.push_async_callback(_end, asyncio.get_running_loop().create_task(budgets.run()))
        return budgets

    def _configure_budgets(self, config: Config) -> None:
        assert self._budgets is not None
        self._budgets.configure(
            config.tenants,
            on_failure=config.ledger.on_failure,
            lease_ratio=config.ledger.budget_lease_ratio,
        )

    def _tell(self, pid: int, event: Event) -> None:
        if self._supervisor is not None:
            self._supervisor.tell(pid, event)

    async def _apply(self, version: int, config: Config) -> Confirmed:
        """Put a configuration that was reloaded in force."""
        assert self._supervisor is not None
        self._ledger.configure(config)
        move = self._replicas.plan(config)
        await self._replicas.leave(move)
        if self._telemetry is not None:
            self._telemetry.configure(config.telemetry, self._replicas.engines)
        self._configure_budgets(config)  # before the workers ask for them
        self._supervisor.configure(version, self._gateway_config(config))
        if self._experiments is not None:
            self._experiments.configure(config.experiment)
        # After the workers were told of them: what is said of a replica that is unknown is lost.
        self._replicas.join(move)
        return await self._supervisor.confirmed(_CONFIRM_S)

    async def _start_admin(self, parts: contextlib.AsyncExitStack) -> AdminServer | None:
        config = self._config.admin
        if not config.enabled:
            return None
        token = resolve_token(config, self._state_directory)
        costs = LedgerCosts(lambda: self._config) if self._config.ledger.enabled else None
        app = AdminApp(self, config, token=token, assets=load_assets(), costs=costs)
        server = await serve_admin(app, config)
        parts.push_async_callback(server.stop)
        return server

    def _gateway_config(self, config: Config) -> GatewayConfig:
        engines = self._replicas.engines
        control = msgspec.structs.replace(
            config.control(),
            replicas=tuple(engine.name for engine in engines),
            lacks={engine.name: engine.unsupported for engine in engines if engine.unsupported},
        )
        return GatewayConfig(
            server=config.server,
            upstreams=tuple(map(self._upstream, engines)),
            aliases=config.aliases,
            key_hashes=config.key_hashes,
            key_names=config.key_names,
            control=control,
            journal=msgspec.structs.replace(
                config.journal, directory=str(journal_directory(config.journal))
            ),
            on_ledger_failure=config.ledger.on_failure,
            cache_salt=cache_salt(config, self._state_directory),
        )

    def _upstream(self, engine: RemoteEngine) -> Upstream:
        upstream = msgspec.convert(engine, Upstream, from_attributes=True)
        tag = self._ledger.request_tag if engine.names_requests else None
        return msgspec.structs.replace(upstream, request_tag=tag)

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
        return Listening(
            url=f"{scheme}://{shown}:{port}/v1",
            admin_url=admin_url,
            admin_token_file=str(token_file) if admin_url and token_file else None,
            ledger=str(self._ledger.directory) if self._config.ledger.enabled else None,
            models=sorted(self._replicas.models() | set(self._config.aliases)),
            pid=os.getpid(),
            worker_pids=self._supervisor.pids,
            engine_pids=self.engine_pids(),
        )


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
