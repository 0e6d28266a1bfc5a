"""Programs under test: started on one core, watched by CPU time, stopped with their children."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from types import TracebackType

import psutil

from benchmarks.support.machine import pinned
from mileage.loadgen.launched_server import free_port

__all__ = ["LOCAL", "NotReadyError", "Service", "exit_on_signals", "free_port"]

LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens URLs of this machine, whatever proxy the environment names."""


class NotReadyError(Exception):
    """A program did not come up; the text says which one and shows the end of its log."""


class Service:
    """One program and all its children, in a process group of their own and on one core, or on
    those of this process where `core` is None.

    Use as a context manager: leaving it ends the whole group.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        core: int | None,
        log: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.log = name, log
        with log.open("wb") as out, nullcontext() if core is None else pinned(core):
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "NO_PROXY": "127.0.0.1", **(env or {})},
                start_new_session=True,
            )

    def __enter__(self) -> Service:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the program itself."""
        return self._process.pid

    def wait_ready(self, url: str, timeout_s: float = 30.0) -> None:
        """Wait until GET `url` gives 200; raises NotReadyError."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            with suppress(OSError), LOCAL.open(url, timeout=2) as answer:
                if answer.status == 200:
                    return
            time.sleep(0.1)
        raise NotReadyError(f"{self.name} is not ready at {url}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The end of what it printed."""
        return self.log.read_text(errors="replace")[-2000:]

    def tree(self) -> list[psutil.Process]:
        """The program and its living children, all levels."""
        try:
            root = psutil.Process(self.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def cpu_s(self) -> float:
        """CPU seconds of the whole tree, children that ended included."""
        total = 0.0
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
                total += times.children_user + times.children_system
        return total

    def terminate(self, timeout_s: float = 15.0) -> int | None:
        """Ask it to end; its exit code, or None where it has not ended in time."""
        self._process.terminate()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """End the program and what is left of its group."""
        family = self.tree()
        if self._process.poll() is None:
            self.terminate(timeout_s=10.0)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        for process in family:  # those that made a process group of their own
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()


def exit_on_signals() -> None:
    """Make SIGTERM unwind the stack as Ctrl-C does, so that every program is stopped."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
