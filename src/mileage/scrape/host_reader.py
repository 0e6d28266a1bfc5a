"""HostReader: one look at some processes and their host, from files of /proc that stay open."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from mileage.measure.tail_host import CpuTimes, HostSample, PressureTotals, ProcessTotals
from mileage.measure.tail_stage import Role
from mileage.scrape.host_files import (
    KeptFile,
    cpu_times,
    net_rx_softirqs,
    pressure_s,
    schedstat,
    softnet,
    stat_line,
    switches,
)

__all__ = ["HostReader"]

T = TypeVar("T")
_RARELY = 4
_THREADS_MAX = 1024
"""Of one process; those beyond are not looked at."""


class _Process:
    """The files of one process. `threads`: all of them are looked at, else the main thread.

    Servers have hundreds of threads that wait for work. Those that neither ran nor waited for a CPU
    from one `refresh` to the next are not looked at until a later one sees them at work.
    """

    def __init__(self, proc: Path, pid: int, role: Role, *, threads: bool) -> None:
        self._directory = proc / str(pid) / "task"
        self._pid, self._role, self._threads = pid, role, threads
        self._stat = KeptFile(self._directory / str(pid) / "stat")
        self._status = KeptFile(self._directory / str(pid) / "status")
        self._schedstats: dict[int, KeptFile] = {}
        self._seen: dict[int, str] = {}
        self._at_work: list[int] = []
        self.refresh()

    def refresh(self) -> None:
        """Look which threads there are now, and which of them have been at work."""
        tids = [self._pid]
        if self._threads:
            try:
                tids = sorted(int(name) for name in os.listdir(self._directory))[:_THREADS_MAX]
            except OSError:
                tids = []
        for tid in set(self._schedstats) - set(tids):
            self._schedstats.pop(tid).close()
        for tid in set(tids) - set(self._schedstats):
            try:
                self._schedstats[tid] = KeptFile(self._directory / str(tid) / "schedstat")
            except OSError:
                continue  # it has just ended, or the kernel has none
        before, self._seen = self._seen, {}
        for tid, file in self._schedstats.items():
            with contextlib.suppress(OSError):
                self._seen[tid] = file.read()
        self._at_work = [tid for tid, text in self._seen.items() if text != before.get(tid)]

    def read(self, ticks_per_s: int, *, delays: bool) -> ProcessTotals:
        """Its totals now. Raises OSError where it is gone."""
        stat = stat_line(self._stat.read())
        if stat.state in "ZX":
            raise OSError("the process has ended")
        voluntary, involuntary = switches(self._status.read())
        run_s, waits = 0.0, {}
        for tid in self._at_work:
            try:
                ran_s, waits[tid] = schedstat(self._schedstats[tid].read())
            except (OSError, ValueError):
                continue  # the thread has just ended
            run_s += ran_s
        return ProcessTotals(
            role=self._role,
            pid=self._pid,
            stopped=stat.state in "Tt",
            run_s=run_s if waits else None,
            wait_s=waits,
            voluntary_switches=voluntary,
            involuntary_switches=involuntary,
            minor_faults=stat.minor_faults,
            major_faults=stat.major_faults,
            blocked_s=stat.blocked_ticks / ticks_per_s if delays else None,
            cpu=stat.cpu,
        )

    def close(self) -> None:
        for file in (self._stat, self._status, *self._schedstats.values()):
            file.close()


class HostReader:
    """Reads the processes of `pids` by role, and their host.

    Of an engine all threads are looked at, of generator and gateway the main thread, which runs the
    event loop. What cannot be read is None in the samples, and `missing` says why.
    """

    def __init__(
        self,
        pids: Mapping[Role, Sequence[int]],
        *,
        clock: Callable[[], float],
        proc: Path = Path("/proc"),
        ticks_per_s: int | None = None,
    ) -> None:
        self._clock = clock
        self._ticks_per_s = ticks_per_s or os.sysconf("SC_CLK_TCK")
        self.missing: dict[str, str] = {}
        """What could not be read, and why."""
        self._processes: dict[tuple[Role, int], _Process] = {}
        for role, numbers in pids.items():
            for pid in numbers:
                try:
                    self._processes[role, pid] = _Process(proc, pid, role, threads=role == "engine")
                except OSError as error:
                    self.missing[f"{role} {pid}"] = error.strerror or str(error)
        self._files: dict[str, KeptFile] = {}
        for name in ("pressure/cpu", "pressure/memory", "pressure/io", "softirqs", "stat"):
            self._open(name, proc / name)
        self._open("net/softnet_stat", proc / "net" / "softnet_stat")
        self._looks = 0
        self._delays = _delay_accounting(proc)

    def look(self) -> HostSample:
        """One sample; what is costly to read and counts in hundredths is in each fourth only."""
        at_s = self._clock()
        processes = []
        for key, process in list(self._processes.items()):
            try:
                processes.append(process.read(self._ticks_per_s, delays=self._delays))
            except (OSError, ValueError) as error:
                process.close()
                del self._processes[key]
                self.missing[f"{key[0]} {key[1]}"] = f"not to the end: {error}"
        rare = self._looks % _RARELY == 0
        self._looks += 1
        return HostSample(
            at_s=at_s,
            processes=tuple(processes),
            pressure=PressureTotals(
                cpu_s=self._read("pressure/cpu", lambda text: pressure_s(text, "some")),
                memory_s=self._read("pressure/memory", lambda text: pressure_s(text, "full")),
                io_s=self._read("pressure/io", lambda text: pressure_s(text, "full")),
            ),
            softnet=self._read("net/softnet_stat", softnet) if rare else None,
            net_rx_softirqs=self._read("softirqs", net_rx_softirqs) if rare else None,
            cpus=(self._read("stat", self._cpu_times) or ()) if rare else (),
        )

    def _cpu_times(self, text: str) -> tuple[CpuTimes, ...]:
        return cpu_times(text, self._ticks_per_s)

    def refresh(self) -> None:
        """Look for threads that are new."""
        for process in self._processes.values():
            process.refresh()

    def close(self) -> None:
        """Close all files."""
        for process in self._processes.values():
            process.close()
        for file in self._files.values():
            file.close()

    def _open(self, name: str, path: Path) -> None:
        try:
            self._files[name] = KeptFile(path)
        except OSError as error:
            self.missing[f"/proc/{name}"] = error.strerror or str(error)

    def _read(self, name: str, parse: Callable[[str], T | None]) -> T | None:
        file = self._files.get(name)
        if file is None:
            return None
        try:
            return parse(file.read())
        except (OSError, ValueError, IndexError) as error:
            self._files.pop(name).close()
            self.missing[f"/proc/{name}"] = str(error)
            return None


def _delay_accounting(proc: Path) -> bool:
    try:
        return (proc / "sys" / "kernel" / "task_delayacct").read_text().strip() == "1"
    except OSError:
        return False
