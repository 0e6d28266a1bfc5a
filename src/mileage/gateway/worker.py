"""Worker: one data-plane process: the listener, the app and the driver, told by the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import signal
import socket
import time
from collections.abc import Callable
from functools import partial

import msgspec

from mileage.control.controller import Controller
from mileage.control.snapshot import dump_state
from mileage.core.actions import AskBudget, ReturnBudget
from mileage.core.errors import ConfigError
from mileage.core.events import ConfigChanged, Event
from mileage.core.ports import JournalSink, RequestLog
from mileage.core.request import Endpoint
from mileage.gateway.app import App
from mileage.gateway.channel import Channel
from mileage.gateway.config import GatewayConfig
from mileage.gateway.driver import Driver
from mileage.gateway.file_limit import fit_connections, raise_file_limit
from mileage.gateway.messages import (
    BudgetTalk,
    Configure,
    Deliver,
    Drain,
    LoadTalk,
    Mark,
    Marked,
    Ready,
    Reconfigure,
    Report,
    Retarget,
    ToWorker,
)
from mileage.gateway.metrics import GatewayMetrics
from mileage.gateway.pause_watch import PauseWatch
from mileage.gateway.refusals import error_body
from mileage.gateway.request_ids import RequestIds
from mileage.gateway.state_report import state_report
from mileage.gateway.target import Target
from mileage.gateway.tls import ServerTls, tls_context
from mileage.wire.listener import HttpListener

__all__ = ["Worker", "lacks_of", "run_worker"]

_REPORT_S = 1.0
_FLUSH_S = 1.0
_log = logging.getLogger(__name__)


class Worker:
    """Serves `sock` until told to drain, or until the supervisor is gone."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        index: int,
        seed: int,
        request_log: RequestLog | None,
        channel: Channel[ToWorker],
        journal: JournalSink | None = None,
        config_version: int = 1,
    ) -> None:
        self._config, self._config_version = config, config_version
        self._tls = ServerTls(config.server)
        self._channel, self._request_log, self._journal = channel, request_log, journal
        self.metrics = GatewayMetrics(config.control.slo)
        controller = Controller(
            replicas=tuple(upstream.name for upstream in config.upstreams),
            config=config.control,
            lacks=lacks_of(config),
            random=random.Random(seed),  # noqa: S311 -- routing, not secrets
        )
        if journal is not None:
            journal.start(partial(dump_state, controller))
        self._driver = Driver(
            controller,
            [Target(upstream) for upstream in config.upstreams],
            request_log,
            self.metrics,
            on_ledger_failure=config.on_ledger_failure,
            merging=config.control.merging,
            journal=journal,
        )
        self.metrics.targets.alone_s = controller.governor.alone_s
        self._driver.on_budgets = self._tell_budgets
        self._driver.on_load = lambda model: channel.send(LoadTalk(model))
        self._app = App(config, self._driver, RequestIds(index))
        self._listener = HttpListener(
            config.server,
            self._app.handle,
            error_body=error_body,
            refused=self._app.refused,
        )
        self._pauses = PauseWatch(self.metrics.pauses)
        self._drained = asyncio.Event()

    async def run(self, sock: socket.socket) -> None:
        """Serve; returns when drained."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._drain)
        # What it means to interrupt the gateway is the supervisor's to decide.
        loop.add_signal_handler(signal.SIGINT, lambda: None)
        self._driver.start()
        await self._listener.start(sock, self._tls.context)
        self._pauses.start(loop)
        self._channel.send(Ready(pid=os.getpid()))
        tasks = [loop.create_task(self._obey()), loop.create_task(self._report())]
        try:
            await self._drained.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._end()

    async def _end(self) -> None:
        """Take the parts down; what the cut connections still had in flight is recorded too."""
        self._pauses.stop()
        self._app.close()
        await self._listener.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await self._driver.wait_idle()
        self._driver.stop()
        if self._request_log is not None:
            self._request_log.close()
        if self._journal is not None:
            self._journal.close()
        self._tell_state()
        await self._channel.finish(_FLUSH_S)

    async def _obey(self) -> None:
        try:
            while (message := await self._channel.receive()) is not None:
                if isinstance(message, Deliver):
                    now_s = time.monotonic()
                    for event in message.events:
                        self._observe(event, now_s)
                elif isinstance(message, Reconfigure):
                    self._reconfigure(message)
                    self._tell_state()
                elif isinstance(message, Retarget):
                    self._retarget(message)
                elif isinstance(message, Mark):
                    self._channel.send(Marked(message.number))
                elif isinstance(message, Drain):
                    self._drain()
        except Exception:
            _log.exception("the supervisor cannot be heard any more")
        self._drain()  # the supervisor is gone: nobody would start us again

    def _observe(self, event: Event, now_s: float) -> None:
        try:
            self._driver.handle(event, now_s)
        except Exception:
            # Requests go on with what is known; a worker that is deaf to all later events is worse.
            _log.exception("an event could not be handled: %r", event)

    def _reconfigure(self, message: Reconfigure) -> None:
        """Go on by another configuration, from the next request on: by all of it or by nothing."""
        config = _fitted(message.config)
        settings = msgspec.json.encode(config.control).decode()
        try:
            context = tls_context(config.server)
        except ConfigError as error:
            # The supervisor has found it good: what does not fit has come in between.
            _log.warning("the certificate stays as it is: %s", error)
            context = None
        try:
            # First what can fail: what follows only puts the new in the place of the old.
            targets = self._driver.targets_of(config)
            self._driver.handle(ConfigChanged(message.version, settings), time.monotonic())
        except Exception:
            _log.exception("configuration %d could not be applied", message.version)
            return
        if self._driver.controller.version != message.version:
            _log.error("configuration %d was not understood by the controller", message.version)
            return
        self._tls.use(context)
        self._driver.use(config, targets)
        self._app.use(config)
        self._listener.use(config.server)
        self._config, self._config_version = config, message.version
        try:
            self._app.turn_away()
        except Exception:
            _log.exception("not all that waits could be looked at anew")

    def _retarget(self, message: Retarget) -> None:
        """Call a replica otherwise, from the next request on."""
        try:
            config = self._config.with_upstream(message.upstream)
            self._driver.use(config, self._driver.targets_of(config))
            self._config = config
        except Exception:
            _log.exception("%s could not be called otherwise", message.upstream.name)

    def _drain(self) -> None:
        if not self._app.draining:
            self._app.draining = True
            self._listener.drain()
            self._drain_task = asyncio.get_running_loop().create_task(self._wait_drained())

    async def _wait_drained(self) -> None:
        driver, listener = self._driver, self._listener
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.server.drain_timeout_s):
                await driver.wait_idle()
        if driver.exchanges:
            _log.warning("%d requests were cut by the drain timeout", len(driver.exchanges))
        # What was answered last is still on its way out of the sockets' buffers.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await listener.wait_closed()
        self._drained.set()

    async def _report(self) -> None:
        while True:
            if self._journal is not None:
                self._journal.flush()
            self._tell_state()
            await asyncio.sleep(_REPORT_S)

    def _tell_budgets(self, actions: list[AskBudget | ReturnBudget]) -> None:
        """Tell the treasury what was spent so far, and what the controller asks and returns."""
        spends = self._driver.controller.intake.spends()
        if spends or actions:
            self._channel.send(BudgetTalk(spends=spends, actions=tuple(actions)))

    def _tell_state(self) -> None:
        try:
            self._tell_budgets([])
            self._channel.send(self._snapshot())
        except Exception:
            # The next report tells all of it.
            _log.exception("the state of this worker could not be reported")

    def _snapshot(self) -> Report:
        return state_report(
            self._driver,
            connections=len(self._listener.connections),
            draining=self._app.draining,
            config_version=self._config_version,
            pauses=self._pauses.recent(),
            likeness=self._app.prompts.summary(),
        )


def lacks_of(config: GatewayConfig) -> dict[str, tuple[Endpoint, ...]]:
    """Endpoints that replicas do not have, by name."""
    return {u.name: u.unsupported for u in config.upstreams if u.unsupported}


def _fitted(config: GatewayConfig) -> GatewayConfig:
    """The configuration with as many connections as this process may have files."""
    server = fit_connections(config.server, raise_file_limit())
    return msgspec.structs.replace(config, server=server)


async def run_worker(
    control: socket.socket,
    listening: socket.socket,
    index: int,
    open_log: Callable[[GatewayConfig], RequestLog | None],
    open_journal: Callable[[GatewayConfig, int], JournalSink | None],
) -> None:
    """Run a worker on inherited sockets; the configuration comes as the first message.

    `open_journal` is told the seed of the controller's random numbers, too.
    """
    channel: Channel[ToWorker] = await Channel.open(control, ToWorker)
    first = await channel.receive()
    if not isinstance(first, Configure):
        return
    config = _fitted(first.config)
    request_log = open_log(config)
    seed = int.from_bytes(os.urandom(8))
    worker = Worker(
        config,
        index=index,
        seed=seed,
        request_log=request_log,
        channel=channel,
        journal=open_journal(config, seed),
        config_version=first.version,
    )
    # Start-up's objects live for ever; and what a request allocates is freed by reference counts,
    # so that full collections, which would show in the tail latency, can be rare.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    await worker.run(listening)
