"""CPU and memory of the server's processes, between two looks; restarts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from mileage.core.errors import EngineError
from mileage.scrape.server_use_process import ServerProcesses

__all__ = ["CpuLook", "CpuUse", "cores_of"]

_REFRESH_S = 5.0
"""Descendants are looked for anew after so long: that reads the state of every process."""
_PSS_COST_RATIO = 0.005
"""Reading PSS walks the page tables and holds up the process's own faults: at most this much."""


class CpuLook(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen. The first two are None in the first look at a server's processes."""

    utilisation_ratio: float | None
    gateway_cpu_cores: float | None
    memory_bytes: int | None
    memory_basis: Literal["process_pss", "process_rss"]
    gateway_memory_bytes: int | None
    pids: frozenset[int]
    """The engine's processes."""
    is_new: bool
    """The server is another process than at the look before, or was away."""


class CpuUse:
    """Looks at the processes that `find` tells; it raises EngineError where there are none.

    Utilisation is CPU seconds per second and core that the engine may use, 0..1. Threads that wait
    for each other in a loop count as in use, as llama.cpp's do.
    """

    def __init__(self, find: Callable[[], ServerProcesses], *, clock: Callable[[], float]) -> None:
        self._find, self._clock = find, clock
        self._server: ServerProcesses | None = None
        self._found_s = 0.0
        self._cores = 1.0
        self._roots: frozenset[psutil.Process] | None = None
        self._engine: dict[psutil.Process, float] = {}
        self._gateway: dict[psutil.Process, float] = {}
        self._last_s: float | None = None
        self._pss_bytes: int | None = None
        self._pss_due_s = 0.0
        self._pss_works = True

    def look(self) -> CpuLook:
        """One look. Raises EngineError where the server has no process now that can be read."""
        now_s = self._clock()
        server = self._current(now_s)
        is_new = self._is_new(server)
        if is_new:
            self._last_s, self._pss_bytes = None, None
        engine, engine_s = _used(server.engine, self._engine, self._last_s is None)
        gateway, gateway_s = _used(server.gateway, self._gateway, self._last_s is None)
        if not engine:
            self._server = None
            raise EngineError("server", "its processes cannot be read")
        passed_s = None if self._last_s is None else now_s - self._last_s
        self._engine, self._gateway, self._last_s = engine, gateway, now_s
        memory, basis = self._memory(list(engine), now_s)
        return CpuLook(
            utilisation_ratio=min(1.0, engine_s / passed_s / self._cores) if passed_s else None,
            gateway_cpu_cores=gateway_s / passed_s if passed_s and gateway else None,
            memory_bytes=memory,
            memory_basis=basis,
            gateway_memory_bytes=_rss(gateway) if gateway else None,
            pids=frozenset(process.pid for process in engine),
            is_new=is_new,
        )

    @property
    def is_away(self) -> bool:
        """A server was seen, and some process of it has ended since."""
        return self._roots is not None and not all(map(_is_alive, self._roots))

    def _current(self, now_s: float) -> ServerProcesses:
        server = self._server
        if server is None or self.is_away:
            self._server = None  # it stays so where there is none now
            server = self._find()
            if not server.engine:
                raise EngineError("server", "its processes have just ended")
            self._cores = cores_of(server.engine[0].pid)
        elif now_s - self._found_s < _REFRESH_S:
            return server
        else:
            server = server.refreshed()
        self._server, self._found_s = server, now_s
        return server

    def _is_new(self, server: ServerProcesses) -> bool:
        """A psutil.Process is equal only to the same process: its start time counts, too."""
        roots = frozenset(server.roots)
        before, self._roots = self._roots, roots
        return before is not None and before != roots

    def _memory(
        self, processes: list[psutil.Process], now_s: float
    ) -> tuple[int | None, Literal["process_pss", "process_rss"]]:
        if len(processes) == 1 and self._pss_bytes is None:
            return _rss(processes), "process_rss"
        if self._pss_works and now_s >= self._pss_due_s:
            began_s = self._clock()
            self._pss_bytes = _pss(processes)
            self._pss_works = self._pss_bytes is not None
            cost_s = self._clock() - began_s
            self._pss_due_s = now_s + cost_s / _PSS_COST_RATIO
        if self._pss_works:
            return self._pss_bytes, "process_pss"
        return _rss(processes), "process_rss"


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def cores_of(pid: int, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> float:
    """Logical cores that a process may use: those of its affinity, at most its groups' quota.

    Raises EngineError where the process is gone.
    """
    try:
        process = psutil.Process(pid)
        allowed = len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else 0
    except psutil.Error as error:
        raise EngineError("server", f"its process cannot be read: {error}") from error
    cores = float(allowed or psutil.cpu_count() or 1)
    return min([cores, *_quotas(pid, proc, cgroups)])


def _quotas(pid: int, proc: Path, cgroups: Path) -> Iterable[float]:
    """CPU quotas of all the control groups that a process is in, in cores."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        is_unified = number == "0" and not controllers
        if not is_unified and "cpu" not in controllers.split(","):
            continue
        group = Path(path.lstrip("/"))
        for parent in (group, *group.parents):
            quota = _quota(cgroups / parent) if is_unified else _quota_v1(cgroups / "cpu" / parent)
            if quota is not None:
                yield quota


def _quota(group: Path) -> float | None:
    try:
        quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None  # no such file, or "max"


def _quota_v1(group: Path) -> float | None:
    try:
        quota = int((group / "cpu.cfs_quota_us").read_text(encoding="ascii"))
        period = int((group / "cpu.cfs_period_us").read_text(encoding="ascii"))
        return quota / period if quota > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _used(
    processes: Iterable[psutil.Process], before: dict[psutil.Process, float], is_first: bool
) -> tuple[dict[psutil.Process, float], float]:
    """CPU seconds of each process so far, and of all together since the look before.

    A process that came in between has spent all its time since then; what one that went has spent
    after the look before it is not known, and left out.
    """
    totals: dict[psutil.Process, float] = {}
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        totals[process] = float(times.user + times.system)
    if is_first:
        return totals, 0.0
    return totals, sum(max(0.0, s - before.get(process, 0.0)) for process, s in totals.items())


def _rss(processes: Iterable[psutil.Process]) -> int | None:
    total = 0
    for process in processes:
        try:
            total += int(process.memory_info().rss)
        except psutil.Error:
            return None
    return total


def _pss(processes: Iterable[psutil.Process]) -> int | None:
    total = 0
    for process in processes:
        try:
            total += int(process.memory_full_info().pss)
        except (psutil.Error, AttributeError):
            return None
    return total
