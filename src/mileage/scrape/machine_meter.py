"""MachineMeter: looks at this machine and some of its processes, beside a run."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from mileage.measure.machine_use import GroupSample, MachineSample
from mileage.scrape.host_files import pressure_s

__all__ = ["MachineMeter"]

_PERIOD_S = 0.5
_STOP_WAIT_S = 5.0
_PRESSURE = Path("/proc/pressure")
_LOOPBACK = "lo"
_BITS = 8
_MEGA = 1e6


class MachineMeter:
    """Samples twice a second in a thread, from `start` to `stop`, on the clock given.

    `groups` are pids by name; a process that ends keeps the time that it was last seen with.
    """

    def __init__(
        self,
        groups: Mapping[str, Sequence[int]],
        *,
        clock: Callable[[], float] = time.monotonic,
        period_s: float = _PERIOD_S,
    ) -> None:
        self._clock, self._period_s = clock, period_s
        self._groups = {name: _processes(pids) for name, pids in groups.items()}
        self._last: dict[int, tuple[float, dict[int, float]]] = {}
        self._samples: list[MachineSample] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="machine-meter", daemon=True)

    def start(self) -> None:
        """Begin, with a first look."""
        self._samples.append(self.look())
        self._thread.start()

    def stop(self) -> list[MachineSample]:
        """End, with a last look."""
        self._ending.set()
        self._thread.join(_STOP_WAIT_S)
        self._samples.append(self.look())
        return list(self._samples)

    def _run(self) -> None:
        while not self._ending.wait(self._period_s):
            self._samples.append(self.look())

    def look(self) -> MachineSample:
        """All of it now."""
        cores = psutil.cpu_times(percpu=True)
        idle = ("idle", "iowait", "steal", "guest", "guest_nice")  # guest is in user already
        return MachineSample(
            at_s=self._clock(),
            cores_busy_s=tuple(
                sum(getattr(core, field) for field in core._fields if field not in idle)
                for core in cores
            ),
            steal_s=sum(getattr(core, "steal", 0.0) for core in cores),
            pressure_cpu_s=_pressure("cpu", "some"),
            pressure_memory_s=_pressure("memory", "full"),
            pressure_io_s=_pressure("io", "full"),
            network_bytes=_moved(),
            network_limits=_limits(),
            groups={name: self._group(processes) for name, processes in self._groups.items()},
        )

    def _group(self, processes: Sequence[psutil.Process]) -> GroupSample:
        total_s, threads_s = 0.0, dict[int, float]()
        for process in processes:
            with contextlib.suppress(psutil.Error), process.oneshot():
                times = process.cpu_times()
                own = {each.id: each.user_time + each.system_time for each in process.threads()}
                self._last[process.pid] = times.user + times.system, own
            known_s, own = self._last.get(process.pid, (0.0, {}))
            total_s += known_s
            threads_s |= own
        return GroupSample(cpu_s=total_s, threads_s=threads_s)


def _processes(pids: Sequence[int]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(pid))
    return found


def _pressure(name: str, kind: str) -> float | None:
    try:
        return pressure_s((_PRESSURE / name).read_text("ascii"), kind)
    except (OSError, ValueError):
        return None


def _moved() -> dict[str, int]:
    counters = psutil.net_io_counters(pernic=True)
    return {
        name: each.bytes_sent + each.bytes_recv
        for name, each in counters.items()
        if name != _LOOPBACK
    }


def _limits() -> dict[str, float]:
    """Of interfaces that are up and tell their speed; both ways together."""
    try:
        stats = psutil.net_if_stats()
    except OSError:
        return {}
    return {
        name: 2 * each.speed * _MEGA / _BITS
        for name, each in stats.items()
        if each.isup and each.speed > 0 and name != _LOOPBACK
    }
