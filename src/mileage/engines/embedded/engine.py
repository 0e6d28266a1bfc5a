"""EmbeddedEngine: keeps one llama.cpp child running at one address, restarted when it dies."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from mileage.core.errors import EngineError
from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.child_log import ChildLog
from mileage.engines.embedded.child_params import ChildParams
from mileage.engines.embedded.child_process import COMMAND, ChildProcess
from mileage.engines.embedded.cpu_cores import cores
from mileage.engines.embedded.gguf_header import GgufHeader
from mileage.engines.embedded.held_port import hold_port
from mileage.engines.embedded.model_files import (
    check_adapter,
    check_limits,
    check_model,
    kv_bytes,
)
from mileage.engines.embedded.open_adapter import OpenAdapter
from mileage.engines.embedded.replaced_child import ReplacedChild
from mileage.engines.embedded.resolve import served_name

__all__ = ["EmbeddedEngine", "EmbeddedStatus", "backoff_s"]

CONNECTIONS_MAX = 512
_MONITORING_THREADS = 32
_HEALTHY_AFTER_S = 60.0
_POOLED = frozenset({1, 2, 3, 4})
"""Pooling types of embedding models: mean, CLS token, last token, rank."""


class EmbeddedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the child does now; `reason` is for people and says why it is down."""

    state: Literal["up", "down"]
    pid: int | None = None
    reason: str | None = None


class EmbeddedEngine:
    """One llama.cpp server in a child process.

    `url` and `authorization` stay the same for the life of the object: the port is held by a
    socket of ours between two children. When the child dies, `on_change` is told so and a new one
    is started after a pause that doubles with each failure in a row. `on_change` is called in the
    event loop and must not raise.
    """

    def __init__(
        self,
        config: EmbeddedConfig,
        *,
        model_path: Path,
        state_dir: Path,
        on_change: Callable[[EmbeddedStatus], None],
        start_timeout_s: float = 600.0,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._config, self._model_path = config, model_path
        self._on_change = on_change
        self._start_timeout_s, self._command = start_timeout_s, command
        self._log = ChildLog(state_dir / "embedded.log")
        self._key = secrets.token_urlsafe(32)
        self._port_holder: socket.socket | None = None
        self._params: ChildParams | None = None
        self._child: ChildProcess | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._cancelled: set[asyncio.Task[None]] = set()
        """Watchers that were told to end."""
        self._adapters: tuple[OpenAdapter, ...] = ()
        self.loading = False
        """A child runs that does not serve yet."""

    @property
    def url(self) -> str:
        """Where the server listens; known once `start` has been called."""
        if self._params is None:
            raise EngineError("embedded", "has no address before it is started")
        return f"http://127.0.0.1:{self._params.port}"

    @property
    def authorization(self) -> str:
        """The Authorization header that the server wants."""
        return f"Bearer {self._key}"

    @property
    def served_name(self) -> str:
        """The model's name as clients use it."""
        return served_name(self._config)

    @property
    def pid(self) -> int | None:
        """The child's process id; None while there is none."""
        return self._child.pid if self._child else None

    @property
    def threads(self) -> int:
        """Threads that the child computes with."""
        return self._config.threads or cores()

    @property
    def connections_max(self) -> int:
        """Connections that all clients together may hold open.

        llama.cpp spends a thread on each, idle ones too; past its threads even health checks wait.
        """
        return CONNECTIONS_MAX

    async def start(self) -> None:
        """Start the child; returns when it serves.

        Raises ConfigError, ModelFileError, or EngineError with the reason and what the child
        logged. After an error nothing is left running.
        """
        if self._params is not None:
            raise EngineError("embedded", "was started before")
        await self.prepare()
        try:
            await self.load()
        except BaseException:
            self._params = None
            self._release_port()
            raise

    async def prepare(self) -> None:
        """Check the model and take an address, without starting the child.

        Raises ConfigError, ModelFileError, or EngineError.
        """
        header = await asyncio.to_thread(self._checked_header)
        self._port_holder = hold_port()
        self._params = self._child_params(header, self._port_holder.getsockname()[1])

    async def load(self) -> None:
        """Start the child after `prepare`, or after `unload`; returns when it serves.

        Raises EngineError as `start` does.
        """
        assert self._params is not None, "prepare comes first"
        self._child = await self._launch(self._params)
        self._report("up")
        self._watcher = asyncio.create_task(self._watch(), name="embedded-engine")

    async def unload(self, grace_s: float) -> None:
        """End the child, by force after `grace_s`, and start no other; the address stays ours."""
        await self._unwatch()
        child, self._child = self._child, None
        if child is not None:
            await child.stop(grace_s)

    async def swap(self, adapters: Sequence[OpenAdapter]) -> ReplacedChild:
        """Start another child, with these adapters besides those of the configuration, beside the
        one that serves: from now on `url` is the new one's. The other serves until it is ended.

        Raises EngineError, and all is as before, where there is no child that serves, or the new
        one cannot be started; so it is where this is cancelled.
        """
        before, child, holder = self._params, self._child, self._port_holder
        if before is None or child is None or holder is None:
            raise EngineError("embedded", "is down: adapters can be loaded when it is up again")
        new_holder = hold_port()
        params = msgspec.structs.replace(
            before,
            port=new_holder.getsockname()[1],
            adapters=tuple(adapter.child_path for adapter in adapters),
        )
        try:
            new_child = await self._start_child(params, adapters)
        except BaseException:
            new_holder.close()
            raise
        child = self._child or child  # it may have died meanwhile, and have been replaced
        # Nothing is awaited from here on: who is cancelled now would leave a child that nobody has.
        if self._watcher is not None:
            self._cancelled.add(self._watcher)
            self._watcher.add_done_callback(self._cancelled.discard)
            self._watcher.cancel()
        self._params, self._child, self._port_holder = params, new_child, new_holder
        self._adapters = tuple(adapters)
        self._watcher = asyncio.create_task(self._watch(), name="embedded-engine")
        url = f"http://127.0.0.1:{before.port}"
        return ReplacedChild(child, holder, url, self.authorization)

    async def stop(self, grace_s: float) -> None:
        """End the child, by force after `grace_s`, and start no other."""
        await self.unload(grace_s)
        self._release_port()

    async def _unwatch(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait([self._watcher, *self._cancelled])
            self._watcher = None

    def _checked_header(self) -> GgufHeader:
        header = check_model(self._model_path)
        check_limits(self._config, header)
        for path in self._config.lora:
            check_adapter(Path(path).expanduser(), header)
        return header

    def _child_params(self, header: GgufHeader, port: int) -> ChildParams:
        config = self._config
        return ChildParams(
            parent_pid=os.getpid(),
            model=str(self._model_path),
            served_name=self.served_name,
            port=port,
            api_key=self._key,
            slots=config.slots,
            context_tokens=config.context_tokens,
            threads=self.threads,
            http_threads=CONNECTIONS_MAX + _MONITORING_THREADS,
            cache_type_k=config.cache_type_k,
            cache_type_v=config.cache_type_v,
            lora=tuple(str(Path(path).expanduser()) for path in config.lora),
            kv_bytes=kv_bytes(config, header),
            own_pooling=header.pooling_type in _POOLED or header.causal is False,
        )

    async def _launch(self, params: ChildParams) -> ChildProcess:
        """Start the child that is to serve next; until then none does."""
        self.loading = True
        try:
            return await self._start_child(params, self._adapters)
        finally:
            self.loading = False

    async def _start_child(
        self, params: ChildParams, adapters: Sequence[OpenAdapter]
    ) -> ChildProcess:
        return await ChildProcess.start(
            params,
            self._log,
            timeout_s=self._start_timeout_s,
            command=self._command,
            descriptors=[adapter.descriptor for adapter in adapters],
        )

    async def _watch(self) -> None:
        """Wait for the child to die, start another; for ever, until cancelled."""
        clock = asyncio.get_running_loop().time
        failures, up_s = 0, clock()
        while True:
            if self._child is not None:
                reason = await self._child.wait()
                self._child = None
                failures = 1 if clock() - up_s >= _HEALTHY_AFTER_S else failures + 1
            pause_s = backoff_s(
                failures, self._config.restart_backoff_s, self._config.restart_backoff_max_s
            )
            self._report("down", f"{reason}; next start in {pause_s:.1f} s")
            await asyncio.sleep(pause_s)
            try:
                assert self._params is not None
                self._child = await self._launch(self._params)
            except EngineError as error:
                reason, failures = error.message, failures + 1
                continue
            up_s = clock()
            self._report("up")

    def _report(self, state: Literal["up", "down"], reason: str | None = None) -> None:
        self._on_change(EmbeddedStatus(state=state, pid=self.pid, reason=reason))

    def _release_port(self) -> None:
        if self._port_holder is not None:
            self._port_holder.close()
            self._port_holder = None


def backoff_s(failures: int, first_s: float, max_s: float) -> float:
    """Pause before the start that follows so many failures in a row: doubles, up to the maximum."""
    if failures < 1:
        return 0.0
    return min(max_s, first_s * 2.0 ** min(failures - 1, 60))
