"""One run of an engine under its keeper: started, its log read, drained, ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable
from typing import Final

import msgspec

from mileage.core.errors import EngineError
from mileage.engines.launch.keeper_params import KeeperParams

__all__ = ["EngineProcess"]

_KEEPER: Final = (sys.executable, "-m", "mileage.engines.launch.keeper")
_READ_BYTES: Final = 65_536
_LOG_END_S: Final = 5.0


class EngineProcess:
    """A running engine; make one with `start`. `output` gets its bytes as they come."""

    def __init__(self, process: Process, output: Callable[[bytes], None]) -> None:
        self._process, self._output = process, output
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, params: KeeperParams, output: Callable[[bytes], None]) -> EngineProcess:
        """Start the keeper, and with it the engine. Raises EngineError where that fails."""
        try:
            process = await asyncio.create_subprocess_exec(
                *_KEEPER, stdin=PIPE, stdout=PIPE, stderr=STDOUT, start_new_session=True
            )
        except OSError as error:
            raise EngineError(params.command[0], f"cannot be started: {error}") from error
        running = cls(process, output)
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(msgspec.json.encode(params) + b"\n")
            await process.stdin.drain()
        return running

    @property
    def pid(self) -> int:
        """Of the keeper, whose child the engine is."""
        return self._process.pid

    async def wait(self) -> int:
        """The engine's exit code, or -N where signal N ended it; all of its log has been read."""
        code = await self._process.wait()
        await asyncio.wait({self._reader}, timeout=_LOG_END_S)
        return code

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

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while data := await self._process.stdout.read(_READ_BYTES):
            self._output(data)
