"""One run of an engine under its keeper: started, its log read, drained, ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process, SubprocessStreamProtocol
from collections.abc import Callable, Collection
from typing import Final

import msgspec
import psutil

from mileage.core.errors import EngineError
from mileage.engines.launch.family import adopts_orphans, kill_family
from mileage.engines.launch.keeper_params import KeeperParams

__all__ = ["KEEPER", "EngineProcess"]

KEEPER: Final = (sys.executable, "-P", "-m", "mileage.engines.launch.keeper")
"""-P: without the working directory among its modules, where a file may have the name of one."""
_READ_BYTES: Final = 65_536
_LOG_END_S: Final = 5.0


class _Protocol(SubprocessStreamProtocol):
    """Tells that the process has ended, also while others hold its pipes: `Process.wait` does not
    return until they let go of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=_READ_BYTES, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class EngineProcess:
    """A running engine; make one with `start`. `output` gets its bytes as they come.

    Should its keeper be killed, the engine's processes become this process's own where it adopts
    orphans. They are killed then; `others`, its children from before, are not.
    """

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        protocol: _Protocol,
        output: Callable[[bytes], None],
        others: Collection[psutil.Process],
    ) -> None:
        self._transport, self._exited = transport, protocol.exited
        self._process = Process(transport, protocol, asyncio.get_running_loop())
        self._output, self._others = output, others
        self._reader = asyncio.create_task(self._read())
        self._ended = asyncio.create_task(self._end())

    @classmethod
    async def start(
        cls,
        params: KeeperParams,
        output: Callable[[bytes], None],
        *,
        descriptors: Collection[int] = (),
    ) -> EngineProcess:
        """Start the keeper, and with it the engine. Raises EngineError where that fails.

        `descriptors` are the keeper's until it ends, and not the engine's.
        """
        loop = asyncio.get_running_loop()
        others = frozenset(psutil.Process().children())
        try:
            transport, protocol = await loop.subprocess_exec(
                lambda: _Protocol(loop),
                *KEEPER,
                stdin=PIPE,
                stdout=PIPE,
                stderr=STDOUT,
                start_new_session=True,
                pass_fds=tuple(descriptors),
            )
        except OSError as error:
            raise EngineError(params.command[0], f"cannot be started: {error}") from error
        running = cls(transport, protocol, output, others)
        stdin = running._process.stdin
        assert stdin is not None
        with contextlib.suppress(ConnectionError):
            stdin.write(msgspec.json.encode(params) + b"\n")
            await stdin.drain()
        return running

    @property
    def pid(self) -> int:
        """Of the keeper, whose child the engine is."""
        return self._process.pid

    async def wait(self) -> int:
        """The engine's exit code, or -N where signal N ended it; all of its log has been read."""
        return await asyncio.shield(self._ended)

    async def stop(self, drain_s: float) -> int:
        """Ask it to end by SIGTERM, wait so long, then kill what is left; returns as `wait`."""
        ended = asyncio.ensure_future(self.wait())
        try:
            if drain_s > 0:
                with contextlib.suppress(ProcessLookupError):
                    self._process.send_signal(signal.SIGTERM)
                await asyncio.wait({ended}, timeout=drain_s)
        finally:
            self.let_go()
        return await ended

    def let_go(self) -> None:
        """Have all of it killed at once: the keeper does so when it sees that nobody holds it."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def _end(self) -> int:
        await self._exited.wait()
        code = self._process.returncode
        assert code is not None
        if adopts_orphans():
            await asyncio.to_thread(kill_family, self._others)
        await asyncio.wait({self._reader}, timeout=_LOG_END_S)
        self._reader.cancel()
        self._transport.close()  # a process that is none of these may hold its other end
        return code

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while data := await self._process.stdout.read(_READ_BYTES):
            self._output(data)
