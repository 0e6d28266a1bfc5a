"""`mileage engine launch` for tests: its own process and state, ended in the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import psutil

from tests.support.gateway import wait_until

__all__ = ["ENGINE", "Launching"]

ENGINE = (sys.executable, str(Path(__file__).with_name("launched_engine.py")))
"""Of the scripted engine; --port and what it is to do follow."""

_MILEAGE = str(Path(sys.executable).with_name("mileage"))
_WAIT_S = 60.0


class Launching:
    """A launcher with what it printed: `events` are its documents, `log` is its other output.

    `stderr`: a descriptor that gets the latter instead; `ignored`: a signal that it is started with
    as ignored. It runs in `directory`.
    """

    def __init__(
        self,
        directory: Path,
        kind: str,
        *arguments: str,
        environment: Mapping[str, str] = {},
        stderr: int | None = None,
        ignored: signal.Signals | None = None,
    ) -> None:
        self.directory = directory
        self._stdout, self._log = directory / "events.jsonl", directory / "launch.log"
        self._command = [_MILEAGE, "engine", "launch", kind, "--json", *arguments]
        self._environment = {
            **os.environ,
            "XDG_STATE_HOME": str(directory / "state"),
            **environment,
        }
        self._stderr = stderr
        self._ignored = ignored
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._stdout.open("wb") as out, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.directory,
                preexec_fn=None if self._ignored is None else self._ignore,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log if self._stderr is None else self._stderr,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        family = self.family() if self._process.poll() is None else []
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait(_WAIT_S)
        _, alive = psutil.wait_procs(family, timeout=_WAIT_S)
        for process in alive:
            process.kill()
        if error is not None:
            error.add_note(f"the launcher's log:\n{self.log[-4000:]}")

    def _ignore(self) -> None:
        assert self._ignored is not None
        signal.signal(self._ignored, signal.SIG_IGN)

    @property
    def log(self) -> str:
        """What it and the engine wrote for people."""
        return self._log.read_text(errors="replace")

    @property
    def events(self) -> list[dict[str, Any]]:
        """The documents that it has printed by now."""
        lines = self._stdout.read_bytes().splitlines(keepends=True)
        return [msgspec.json.decode(line) for line in lines if line.endswith(b"\n")]

    def event(self, name: str, timeout_s: float = _WAIT_S) -> dict[str, Any]:
        """The first one of this name; waits for it."""

        def found() -> dict[str, Any] | None:
            event = next((each for each in self.events if each["event"] == name), None)
            assert event is not None or self.running, f"it ended without {name}: {self.log}"
            return event

        event: dict[str, Any] = wait_until(found, f"event {name}", timeout_s)
        return event

    def count(self, name: str) -> int:
        """How many of this name it has printed by now; it must still run."""
        assert self.running, f"it ended: {self.log}"
        return sum(event["event"] == name for event in self.events)

    @property
    def running(self) -> bool:
        """Has it not ended?"""
        assert self._process is not None
        return self._process.poll() is None

    def family(self) -> list[psutil.Process]:
        """The keeper, the engine and what it started."""
        assert self._process is not None
        return list(psutil.Process(self._process.pid).children(recursive=True))

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit code."""
        assert self._process is not None
        return self._process.wait(_WAIT_S)
