"""LaunchedServer: a server that is started for a measurement, and ended with all that it has."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import psutil

from mileage.core.errors import ConfigError, EngineError
from mileage.wire.fetch import Fetch

__all__ = ["LaunchedServer", "free_port", "words_of"]

_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_PLACE = re.compile(r"\{([a-z]+)\}")
_READY_PATHS = ("/v1/models", "/health")
_PORTS = range(20_000, 32_000)
_PORT_TRIES = 100
_POLL_S = 0.2
_ASK_S = 5.0
_END_S = 15.0
_TAIL_BYTES = 2000

_given_ports: set[int] = set()


def words_of(command: str, values: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Variables and words of a command line, with each {NAME} of `values` put in.

    No shell sees it. NAME=VALUE before the first word are variables, as in one. Raises ConfigError
    for a line that is none, and for another {NAME}.
    """

    def put(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in values:
            known = ", ".join(f"{{{each}}}" for each in values)
            raise ConfigError("command", match.group(), f"one of {known}")
        return values[name]

    try:
        words = [_PLACE.sub(put, word) for word in shlex.split(command)]
    except ValueError as error:
        raise ConfigError("command", command, f"words as a shell takes them ({error})") from None
    variables: dict[str, str] = {}
    while words and (found := _VARIABLE.fullmatch(words[0])):
        variables[found.group(1)] = found.group(2)
        words.pop(0)
    if not words:
        raise ConfigError("command", command, "a program to run")
    return variables, words


def free_port() -> int:
    """A port of loopback that nobody listens on now, and that was not given before.

    Below the range that the system takes for outgoing connections: one of those could take the
    port before the server that it is meant for.
    """
    for _ in range(_PORT_TRIES):
        port = _PORTS.start + secrets.randbelow(len(_PORTS))
        if port in _given_ports:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given_ports.add(port)
            return port
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class LaunchedServer:
    """One server process, in a session of its own, whose output goes to a file.

    `stop` ends the process and its descendants, first politely, and nothing else: a process that
    took a number of theirs meanwhile is left alone.
    """

    def __init__(
        self, words: Sequence[str], *, variables: Mapping[str, str], port: int, log: Path
    ) -> None:
        self._words, self._variables, self._log = list(words), dict(variables), log
        self.url = f"http://127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the process; None before the start."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start it. Raises EngineError where it cannot be."""
        with self._log.open("wb") as log:
            self._process = self._started(log)

    def _started(self, log: BinaryIO) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 -- the user's own command
                self._words,
                env={**os.environ, **self._variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise EngineError(self._words[0], f"cannot be started: {reason}") from None

    async def ready(self, fetch: Fetch, *, timeout_s: float) -> None:
        """Wait until it answers. Raises EngineError, with its last output, where it does not."""
        assert self._process is not None
        due_s = time.monotonic() + timeout_s
        while time.monotonic() < due_s:
            if (code := self._process.poll()) is not None:
                raise EngineError(self.url, f"ended with {code} before it was ready{self._tail()}")
            for path in _READY_PATHS:
                try:
                    answer = await fetch(f"{self.url}{path}", timeout_s=_ASK_S)
                except EngineError:
                    break
                if answer.status == 200:
                    return
            await asyncio.sleep(_POLL_S)
        raise EngineError(self.url, f"was not ready within {timeout_s:g} s{self._tail()}")

    def stop(self) -> None:
        """End it, if it lives; twice is fine."""
        if self._process is None:
            return
        family = self._family()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in family:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
            _, family = psutil.wait_procs(family, timeout=_END_S)
            if not family and self._process.poll() is not None:
                break
        self._process = None

    def _family(self) -> list[psutil.Process]:
        """The process, its descendants, and what is left of its session where it has ended."""
        assert self._process is not None
        found: dict[int, psutil.Process] = {}
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self._process.pid)
            found = {each.pid: each for each in (root, *root.children(recursive=True))}
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                if os.getsid(process.pid) == self._process.pid:
                    found.setdefault(process.pid, process)
        return list(found.values())

    def _tail(self) -> str:
        try:
            text = self._log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace").strip()
        except OSError:
            text = ""
        return f"; its output ends with: {text.splitlines()[-1]}" if text else ""
