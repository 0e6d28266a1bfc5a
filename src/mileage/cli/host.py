"""Host: puts the parts of `mileage serve` together, and takes them apart in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from mileage.cli.adapters import Adapters
from mileage.cli.config import Config, state_directory
from mileage.cli.config_source import ConfigSource
from mileage.cli.experiment_file import ExperimentFile
from mileage.cli.gateway_ledger import GatewayLedger
from mileage.cli.gateway_settings import gateway_settings
from mileage.cli.gateway_telemetry import GatewayTelemetry
from mileage.cli.ledger_costs import LedgerCosts
from mileage.cli.listening import Listening, shown_url
from mileage.cli.public_config import public_config
from mileage.cli.reloader import Reloader
from mileage.cli.replicas import Replicas
from mileage.cli.sleepers import Sleepers
from mileage.cli.telemetry_process import TelemetryProcess
from mileage.cli.unless import unless
from mileage.cli.worker import command
from mileage.control.lending import BudgetState
from mileage.core.errors import MileageError
from mileage.core.events import Event
from mileage.dashboard.assets import load_assets
from mileage.engines.remote import RemoteEngine
from mileage.gateway.adapter_desk import AdapterDesk
from mileage.gateway.adapter_state import AdapterStates
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
from mileage.gateway.knob_status import KnobEvent, KnobStatus
from mileage.gateway.messages import Report
from mileage.gateway.model_desk import ModelDesk
from mileage.gateway.supervisor import Confirmed, Supervisor, bind

__all__ = ["Host"]

_CONFIRM_S = 2.0


class Host(FleetState):
    """A gateway with all that belongs to it: workers, engines, health checks, ledger, admin plane.

    `config` is what was loaded from `source`, which is asked again at every reload. `model_path`
    is the embedded engine's model; None where engines or `[[models]]` are configured, the files of
    which are `model_paths`, by name. `log_level` is that of the workers.
    """

    def __init__(
        self,
        source: ConfigSource,
        config: Config,
        model_path: Path | None,
        *,
        model_paths: Mapping[str, Path] | None = None,
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
            sleepers=partial(self._make_sleepers, model_paths or {}),
            tell=self._deliver,
            observed=self.view,
            forget=self.forget,
            changed=self._ledger.look,
            live=self._live,
        )
        self._adapters = Adapters(
            self._replicas,
            model_path,
            deliver=self._deliver,
            heard=self._heard,
            retarget=self._retarget,
        )
        self._supervisor: Supervisor | None = None
        self._budgets: BudgetDesk | None = None
        self._experiments: ExperimentDesk | None = None
        self._telemetry: GatewayTelemetry | None = None
        self._serving = False

    async def run(self, ready: Callable[[Listening], None]) -> None:
        """Serve until asked to stop; `ready` is called when the workers know of an engine.

        Raises MileageError where a part cannot be started; all that was started is then ended, as
        it is where the stop is asked for while the parts start.
        """
        async with contextlib.AsyncExitStack() as parts:
            sockets = bind(self._config.server)
            for sock in sockets:
                parts.callback(sock.close)
            self._ledger.start(self._replicas.seen, parts)
            admin = await self._start_admin(parts)
            if await unless(self._stop_asked, self._start_serving(sockets, parts)):
                up = await unless(self._stop_asked, self._replicas.up.wait())
                if up and await unless(self._stop_asked, self._heard(_CONFIRM_S)):
                    ready(self._listening(sockets[0].getsockname(), admin))
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

    def model_desk(self) -> ModelDesk:
        """What has models loaded and unloaded."""
        return self._replicas.sleepers.desk

    def adapter_desk(self) -> AdapterDesk | None:
        """What has adapters loaded."""
        return self._adapters.desk

    def adapter_states(self) -> AdapterStates:
        """How adapters stand."""
        return self._adapters.states()

    def knob_statuses(self) -> list[KnobStatus]:
        """Engines whose own limits are set."""
        return self._replicas.knobs.statuses()

    def knob_events(self) -> list[KnobEvent]:
        """What happened with them."""
        return self._replicas.knobs.events()

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

    async def _start_serving(
        self, sockets: list[socket.socket], parts: contextlib.AsyncExitStack
    ) -> None:
        """Start what serves: the engine, if it is ours, the workers, the health checks."""
        await self._replicas.start(self._config, parts)
        self._adapters.configure(self._config)
        self._start_telemetry(parts)
        budgets = self._start_budgets(parts)
        supervisor = self._supervisor = Supervisor(
            self._gateway_config(self._config),
            sockets,
            command(self._ledger.directory, self._config.ledger, self._log_level),
            on_report=self._reported,
            on_gone=self._worker_gone,
            on_load=self._wanted,
            budgets=budgets,
        )
        parts.push_async_callback(supervisor.stop)
        self._start_experiments(parts)
        await supervisor.start()
        await self._replicas.watch(parts)
        for run in (self._adapters.run, self.model_desk().run, self._reloader.run):
            task = asyncio.get_running_loop().create_task(run())
            parts.push_async_callback(_end, task)
        self._serving = True

    def _make_sleepers(self, paths: Mapping[str, Path], replicas: Replicas) -> Sleepers:
        return Sleepers(
            self._config,
            paths,
            self._state_directory,
            tell=self._deliver,
            watcher=replicas,
            live=self._live,
            changed=self._ledger.look,
        )

    def _live(self) -> list[int]:
        return [] if self._supervisor is None else self._supervisor.pids

    def _wanted(self, model: str) -> None:
        """Requests of a worker wait for a model: it sleeps, or is an adapter."""
        self._adapters.desk.wanted(model)
        self.model_desk().wanted(model)

    def _reported(self, report: Report) -> None:
        self.model_desk().report(report)
        self._adapters.desk.reported(report.pid, report.adapter_uses, report.waiting)
        self._replicas.knobs.report(report)
        self.report(report)

    def _worker_gone(self, pid: int) -> None:
        self._adapters.desk.worker_gone(pid)
        self.model_desk().gone(pid)
        self._replicas.knobs.gone(pid)
        self.worker_gone(pid)

    def _retarget(self) -> None:
        """Let the workers call the embedded engine where it is now, with its adapters."""
        if self._supervisor is not None:
            for engine in self._replicas.engines:
                self._supervisor.retarget(self._upstream(engine))

    def _start_telemetry(self, parts: contextlib.AsyncExitStack) -> None:
        """Start what looks at the engines' GPUs; it ends before the feeder does."""
        telemetry = self._telemetry = GatewayTelemetry(
            self._ledger.note_gpu_minutes,
            partial(
                TelemetryProcess,
                host=socket.gethostname(),
                log_level=self._log_level,
                pids=self._replicas.pids,
            ),
            own_engine=self._model_path is not None,
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
        await self._replicas.leave(move := self._replicas.plan(config))
        if self._telemetry is not None:
            self._telemetry.configure(config.telemetry, self._replicas.engines)
        self._configure_budgets(config)  # before the workers ask for them
        self._adapters.withhold(config)  # before others may use what has the same name
        self._supervisor.configure(version, self._gateway_config(config))
        if self._experiments is not None:
            self._experiments.configure(config.experiment)
        # After the workers were told of them: what is said of a replica that is unknown is lost.
        await self._replicas.join(move)
        self._replicas.sleepers.configure(config)
        self._adapters.configure(config)
        await self._replicas.checked(move, _CONFIRM_S)
        await self._heard(_CONFIRM_S)
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
        engines, endpoints = self._replicas.engines, self._adapters.endpoints
        upstreams = tuple(map(self._upstream, engines))
        return gateway_settings(config, engines, upstreams, endpoints, self._state_directory)

    def _upstream(self, engine: RemoteEngine) -> Upstream:
        upstream = msgspec.convert(engine, Upstream, from_attributes=True)
        lora = self._adapters.fields(upstream)
        tag = self._ledger.request_tag if engine.names_requests else None
        return msgspec.structs.replace(upstream, request_tag=tag, lora=lora)

    def _deliver(self, event: Event) -> None:
        if self._supervisor is not None:
            self._supervisor.deliver(event)

    async def _heard(self, timeout_s: float) -> bool:
        return self._supervisor is None or await self._supervisor.heard(timeout_s)

    def _listening(self, address: Any, admin: AdminServer | None) -> Listening:
        admin_url = admin.url.rstrip("/") if admin is not None else None
        assert self._supervisor is not None
        token_file = token_path(self._config.admin, self._state_directory)
        return Listening(
            url=shown_url(*address[:2], tls=self._config.server.tls_cert is not None),
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
