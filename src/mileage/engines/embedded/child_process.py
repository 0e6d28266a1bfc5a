"""Starts and ends one child process; its parameters, report and log go over pipes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

import msgspec

from mileage.core.errors import EngineError
from mileage.engines.embedded.child_log import ChildLog
from mileage.engines.embedded.child_params import ChildParams, ChildReport, Failed

__all__ = ["COMMAND", "ChildProcess"]

COMMAND = (sys.executable, "-m", "mileage.engines.embedded.child")
_REPORT_BYTES_MAX = 65_536
_TAIL_LINES = 3


class ChildProcess:
    """A child that serves; make one with `start`."""

    def __init__(self, process: Process, log: ChildLog) -> None:
        self._process, self._log = process, log
        self._reader = asyncio.create_task(self._read_log())

    @classmethod
    async def start(
        cls,
        params: ChildParams,
        log: ChildLog,
        *,
        timeout_s: float,
        command: Sequence[str],
        descriptors: Sequence[int] = (),
    ) -> ChildProcess:
        """Start a child, which inherits the descriptors, and wait until it serves.

        Raises EngineError with the reason that it gave or logged; no process is left then.
        """
        log.begin()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                start_new_session=True,
                pass_fds=tuple(descriptors),
            )
        except OSError as error:
            raise EngineError("embedded", f"cannot start {command[0]}: {error}") from error
        child = cls(process, log)
        try:
            async with asyncio.timeout(timeout_s):
                await child._handshake(params)
        except TimeoutError:
            await child.stop(0.0)
            message = f"was not ready within {timeout_s:.0f} s: {log.first_errors()}"
            raise EngineError("embedded", message) from None
        except BaseException:
            await child.stop(0.0)
            raise
        return child

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """The process is gone."""
        return self._process.returncode is not None

    async def _handshake(self, params: ChildParams) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # A child that died at once is explained by its log, not by our broken pipe.
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(msgspec.json.encode(params) + b"\n")
            await self._process.stdin.drain()
        line = await self._process.stdout.readline()
        try:
            report = msgspec.json.decode(line, type=ChildReport)
        except msgspec.MsgspecError:
            raise EngineError("embedded", f"could not start: {await self.wait()}") from None
        if isinstance(report, Failed):
            await self.wait()
            detail = self._log.first_errors()
            raise EngineError(
                "embedded", f"could not start: {report.reason}{f' ({detail})' if detail else ''}"
            )

    async def _read_log(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(_REPORT_BYTES_MAX):
            self._log.feed(data)
        self._log.end()

    async def wait(self) -> str:
        """Wait for the process to end; says how it ended and what it logged last."""
        code = await self._process.wait()
        await self._reader
        lines = [line for line in self._log.tail(_TAIL_LINES) if line]
        return f"{_ending(code)}{': ' if lines else ''}{'; '.join(lines)}"

    async def stop(self, grace_s: float) -> None:
        """Ask the process to end, kill it after `grace_s`, and return when it is gone."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        ended = asyncio.ensure_future(self._process.wait())
        try:
            # Not asyncio.timeout: in a task that was cancelled it never times out before 3.11.3.
            await asyncio.wait({ended}, timeout=grace_s)
        finally:
            if not ended.done():
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
            await asyncio.shield(self._gone())
            await ended

    async def _gone(self) -> None:
        await self._process.wait()
        await self._reader


def _ending(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
