"""KernelTracer: runs bpftrace beside a run, where it is installed and allowed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from msgspec.structs import replace

from mileage.measure.tail_host import Pause
from mileage.measure.tail_stage import Role
from mileage.scrape.host_ebpf import KernelTrace, program, read_trace, refusal

__all__ = ["KernelTracer"]

_START_WAIT_S = 15.0
_STOP_WAIT_S = 5.0
_POLL_S = 0.05
_READ_BYTES_MAX = 64 * 1024 * 1024


class KernelTracer:
    """Traces the threads of `pids` from `start` to `stop`. What hinders it is in `missing`."""

    def __init__(self, pids: Mapping[Role, Sequence[int]], *, command: str = "bpftrace") -> None:
        self._command = command
        self._roles: dict[int, tuple[Role, int]] = {}
        for role, numbers in pids.items():
            for pid in numbers:
                self._roles |= dict.fromkeys(_threads(pid), (role, pid))
        self._process: subprocess.Popen[bytes] | None = None
        self._out: IO[bytes] | None = None
        self._err: IO[bytes] | None = None
        self.missing: str | None = None
        """Why nothing is traced, or not all."""

    def start(self) -> None:
        """Begin; returns when the probes are attached, or it is known that they cannot be."""
        path = shutil.which(self._command)
        if path is None:
            self.missing = "bpftrace is not installed"
            return
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(  # noqa: S603 -- a fixed command, numbers for arguments
                [path, "-B", "line", "-e", program(self._roles)],
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=self._err,
            )
        except OSError as error:
            self.missing = f"bpftrace: {error.strerror or error}"
            self._close()
            return
        deadline_s = time.monotonic() + _START_WAIT_S
        while b"clock " not in _text(self._out):
            if self._process.poll() is not None:
                self.missing = refusal(_text(self._err).decode("utf-8", "replace"))
                break
            if time.monotonic() > deadline_s:
                self.missing = f"bpftrace did not begin within {_START_WAIT_S:g} s"
                break
            time.sleep(_POLL_S)
        if self.missing is not None:
            self._end()
            self._close()

    def stop(self) -> list[Pause]:
        """End; the pauses, on time.monotonic()."""
        if self._process is None or self._out is None:
            return []
        self._end()
        lines = _text(self._out).decode("utf-8", "replace").splitlines()
        self._close()
        trace = read_trace(lines, self._roles)
        if trace.lost or trace.unread:
            self.missing = f"not all: {trace.lost} events lost, {trace.unread} lines unread"
        return _monotonic(trace)

    def _end(self) -> None:
        """Ask it to end, as Ctrl-C does: it detaches its probes then."""
        process = self._process
        assert process is not None
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_STOP_WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _close(self) -> None:
        for file in (self._out, self._err):
            if file is not None:
                file.close()
        self._process = self._out = self._err = None


def _monotonic(trace: KernelTrace) -> list[Pause]:
    """Newer bpftraces tell the time since boot, in which a suspended machine's sleep counts."""
    if trace.clock_s is None:
        return []
    slept_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    if trace.clock_s <= time.monotonic():
        slept_s = 0.0
    return [
        replace(pause, start_s=pause.start_s - slept_s, end_s=pause.end_s - slept_s)
        for pause in trace.pauses
    ]


def _threads(pid: int) -> list[int]:
    found = [pid]
    with contextlib.suppress(OSError):
        found += [int(name) for name in os.listdir(Path("/proc") / str(pid) / "task")]
    return sorted(set(found))


def _text(file: IO[bytes]) -> bytes:
    return os.pread(file.fileno(), _READ_BYTES_MAX, 0)
