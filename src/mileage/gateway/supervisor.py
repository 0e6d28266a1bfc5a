"""Supervisor: starts the workers, starts them again when they die, tells them what happens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from mileage.control.shares import Shares
from mileage.core.errors import ConfigError, MileageError
from mileage.core.events import (
    Event,
    ExperimentChanged,
    Loadable,
    Observed,
    OthersSeen,
    ReplicaDown,
    ReplicaUp,
    ShareChanged,
)
from mileage.gateway.budget_desk import BudgetDesk
from mileage.gateway.channel import Channel
from mileage.gateway.config import GatewayConfig, ServerConfig, Upstream
from mileage.gateway.messages import (
    BudgetTalk,
    Configure,
    Deliver,
    Drain,
    FromWorker,
    LoadTalk,
    Mark,
    Marked,
    Ready,
    Reconfigure,
    Report,
    Retarget,
)
from mileage.gateway.worker_slot import WorkerSlot

__all__ = ["Confirmed", "Supervisor", "bind"]

_BACKOFF_S = 0.25
_BACKOFF_MAX_S = 10.0
_BACKLOG = 4096
_HEALTHY_AFTER_S = 60.0
_log = logging.getLogger(__name__)

T = TypeVar("T")


def bind(config: ServerConfig) -> list[socket.socket]:
    """One bound socket per worker, all on the same address.

    With several, the kernel spreads the connections over them (SO_REUSEPORT). They stay open in
    the supervisor, so that connections made while a worker is started again wait and are not
    refused. Raises ConfigError where the address cannot be bound.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigError(
            "server.host", config.host, f"an address of this machine ({error})"
        ) from None
    sockets = []
    try:
        # Alone first, without sharing: another gateway on this port must be noticed.
        with _bound(family, address, shared=False) as probe:
            address = probe.getsockname()
            if config.workers == 1:
                return [probe.dup()]
        sockets = [_bound(family, address, shared=True) for _ in range(config.workers)]
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise ConfigError(
            "server.port", config.port, f"a free port on {config.host} ({error.strerror})"
        ) from None
    return sockets


def _bound(family: int, address: Any, *, shared: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
        # Listening at once, so that a second gateway, which would bind too, is refused.
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


class Confirmed(NamedTuple):
    """Processes of workers that work by a configuration, and of those that did not say so."""

    by: list[int]
    not_by: list[int]


class Supervisor:
    """Runs `config.server.workers` processes of `command`.

    The command gets three more arguments: the number of the control socket, that of the listening
    socket, and the worker's index. `on_report` and `on_gone` (with a pid) tell of the workers;
    `on_load` gets the name of a model that their requests wait for; `budgets` grants them what
    their tenants may spend.
    A worker that dies before it has served at all makes `start` fail: the next one would die too.
    One that dies later is started again.
    """

    def __init__(
        self,
        config: GatewayConfig,
        sockets: Sequence[socket.socket],
        command: Sequence[str],
        *,
        on_report: Callable[[Report], None],
        on_gone: Callable[[int], None],
        on_load: Callable[[str], None] = lambda model: None,
        budgets: BudgetDesk | None = None,
    ) -> None:
        self._budgets = budgets
        self._config, self._version = config.worker_share(), 1
        self._reported = asyncio.Event()
        self._mark = 0
        self._command = tuple(command)
        self._on_report, self._on_gone, self._on_load = on_report, on_gone, on_load
        self._slots = [WorkerSlot(index, sock) for index, sock in enumerate(sockets)]
        self._state: dict[str, ReplicaUp | ReplicaDown] = {}
        self._views: dict[str, Observed] = {}
        self._loadable: dict[str, Loadable] = {}
        self._experiment = ExperimentChanged("")
        self._shares: Shares[int] = Shares()
        self._draining = asyncio.Event()
        self._killed = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def pids(self) -> list[int]:
        """Processes of the workers that live."""
        return [slot.process.pid for slot in self._slots if slot.process is not None]

    async def start(self) -> None:
        """Start the workers; returns when all accept connections.

        Raises MileageError where one ends before that. `stop` is to be called in any case.
        """
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep(slot)) for slot in self._slots]
        await asyncio.gather(*(slot.ready for slot in self._slots))

    def deliver(self, event: Event) -> None:
        """Tell all workers of an event; later ones are told the latest of each replica."""
        if isinstance(event, ReplicaUp | ReplicaDown):
            self._state[event.replica] = event
        elif isinstance(event, Observed):
            self._views[event.view.replica] = event
        elif isinstance(event, Loadable):
            self._loadable[event.replica] = event
        elif isinstance(event, ExperimentChanged):
            self._experiment = event
        self._send(Deliver((event,)))

    def tell(self, pid: int, event: Event) -> None:
        """Tell one worker of an event; one that is gone needs none."""
        for slot in self._slots:
            if slot.channel is not None and slot.process is not None and slot.process.pid == pid:
                slot.channel.send(Deliver((event,)))

    def configure(self, version: int, config: GatewayConfig) -> None:
        """Let all workers go on with another configuration; later ones begin with it.

        Of the version that they have nothing is sent.
        """
        if version == self._version:
            return
        self._config, self._version = config.worker_share(), version
        names = {upstream.name for upstream in config.upstreams}
        self._state = {name: event for name, event in self._state.items() if name in names}
        self._views = {name: event for name, event in self._views.items() if name in names}
        self._loadable = {name: each for name, each in self._loadable.items() if name in names}
        self._send(Reconfigure(self._config, version))

    def retarget(self, upstream: Upstream) -> None:
        """Let all workers call a replica by this from now on; later ones begin with it."""
        self._config = self._config.with_upstream(upstream.share(self._config.server.workers))
        self._send(Retarget(upstream.share(self._config.server.workers)))

    async def confirmed(self, timeout_s: float) -> Confirmed:
        """Who works by it: when all that live do, after `timeout_s` at the latest."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not all(self._is_current(slot) for slot in self._slots if slot.channel):
                    self._reported.clear()
                    await self._reported.wait()
        confirmed = Confirmed([], [])
        for slot in self._slots:
            if slot.process is not None:
                current = self._is_current(slot)
                (confirmed.by if current else confirmed.not_by).append(slot.process.pid)
        return confirmed

    async def heard(self, timeout_s: float) -> bool:
        """Wait until all workers that live have taken in what they were told so far. False: some
        have not by then."""
        self._mark += 1
        mark = self._mark
        self._send(Mark(mark))
        try:
            async with asyncio.timeout(timeout_s):
                while any(slot.channel and slot.mark < mark for slot in self._slots):
                    self._reported.clear()
                    await self._reported.wait()
        except TimeoutError:
            return False
        return True

    def _is_current(self, slot: WorkerSlot) -> bool:
        return slot.version is not None and slot.version >= self._version

    def drain(self) -> None:
        """Let the workers finish what is in flight, then exit."""
        self._draining.set()
        self._send(Drain())

    async def wait(self) -> None:
        """Wait until all workers have exited, after `drain`."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def kill(self) -> None:
        """End the workers at once; what is in flight is found in the log and marked lost."""
        self._draining.set()
        self._killed = True
        for slot in self._slots:
            if slot.process is not None:
                _kill(slot.process)

    async def stop(self) -> None:
        """End the workers that still run, and wait until none does."""
        self.kill()
        await self.wait()

    def _send(self, message: msgspec.Struct) -> None:
        for slot in self._slots:
            if slot.channel is not None:
                slot.channel.send(message)

    def _share_out(self) -> None:
        """Divide what is meant for all workers together by what each has to do."""
        slots = {slot.index: slot for slot in self._slots if slot.channel is not None}
        shares = self._shares.update({index: slot.in_flight for index, slot in slots.items()})
        for index, ratio in shares.items():
            channel = slots[index].channel
            if channel is not None:
                channel.send(Deliver((ShareChanged(ratio),)))

    def _tell_others(self, slot: WorkerSlot) -> None:
        """Tell a worker what the others have at the replicas: they share their GPU time.

        Each is told after its own report only: with many workers that is work enough.
        """
        others: dict[str, int] = {}
        for other in self._slots:
            if other is not slot and other.channel is not None:
                for name, weight in other.gpu_weights.items():
                    others[name] = others.get(name, 0) + weight
        if others != slot.others and slot.channel is not None:
            slot.others = others
            slot.channel.send(Deliver((OthersSeen(tuple(sorted(others.items()))),)))

    async def _keep(self, slot: WorkerSlot) -> None:
        """Keep one worker running until drained."""
        backoff_s = _BACKOFF_S
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            ending = "could not be started"
            try:
                ending = f"ended with exit code {await self._run(slot)}"
            except Exception:
                _log.exception("worker %d failed", slot.index)
            if self._draining.is_set():
                return
            if not slot.ready.done():
                message = f"worker {slot.index} {ending} before it served; its log says why"
                slot.ready.set_exception(MileageError(message))
                return
            if loop.time() - started_s > _HEALTHY_AFTER_S:
                backoff_s = _BACKOFF_S
            _log.error("worker %d %s; starting it again in %.2g s", slot.index, ending, backoff_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff_s):
                    await self._draining.wait()
                    return
            backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)

    async def _run(self, slot: WorkerSlot) -> int:
        """Run one worker process from start to end; its exit code.

        A worker whose channel is closed drains and ends.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = slot.process = await asyncio.create_subprocess_exec(
                    *self._command,
                    str(theirs.fileno()),
                    str(slot.sock.fileno()),
                    str(slot.index),
                    stdin=asyncio.subprocess.DEVNULL,
                    # Ctrl-C is for the supervisor, which decides what it means.
                    start_new_session=True,
                    pass_fds=(theirs.fileno(), slot.sock.fileno()),
                )
        except BaseException:
            ours.close()
            raise
        try:
            if self._killed:
                _kill(process)
            if self._budgets is not None:
                self._budgets.joined(process.pid, slot.index)
            await self._talk(slot, await Channel.open(ours, FromWorker))
        finally:
            code = await process.wait()
            slot.process = None
            _tell(self._on_gone, process.pid)
            if self._budgets is not None:
                _tell(partial(self._budgets.left, settled=code == 0), process.pid)
        return code

    async def _talk(self, slot: WorkerSlot, channel: Channel[FromWorker]) -> None:
        """Tell a worker all that it is to know, and hear it until it is gone."""
        channel.send(Configure(self._config, self._version))
        if self._experiment.settings:  # first: no request is to go before it is known
            channel.send(Deliver((self._experiment,)))
        told = (*self._state.values(), *self._loadable.values(), *self._views.values())
        channel.send(Deliver(told))
        slot.channel, slot.in_flight, slot.mark = channel, 0, self._mark
        slot.gpu_weights, slot.others = {}, {}
        self._share_out()
        if self._draining.is_set():
            channel.send(Drain())
        try:
            while (message := await channel.receive()) is not None:
                if isinstance(message, BudgetTalk):
                    if self._budgets is not None and slot.process is not None:
                        _tell(partial(self._budgets.heard, slot.process.pid), message)
                elif isinstance(message, LoadTalk):
                    _tell(self._on_load, message.model)
                elif isinstance(message, Marked):
                    slot.mark = message.number
                    self._reported.set()
                elif not isinstance(message, Ready):
                    slot.version, slot.in_flight = message.config_version, message.in_flight
                    slot.gpu_weights = {
                        r.name: r.gpu_weight for r in message.replicas if r.gpu_weight
                    }
                    self._reported.set()
                    self._share_out()
                    self._tell_others(slot)
                    _tell(self._on_report, message)
                elif not slot.ready.done():
                    slot.ready.set_result(None)
        finally:
            slot.channel = slot.version = None
            self._reported.set()
            channel.close()


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


def _tell(callback: Callable[[T], None], value: T) -> None:
    """Whatever the callback does, the worker is looked after."""
    try:
        callback(value)
    except Exception:
        _log.exception("what a worker told could not be taken in")
