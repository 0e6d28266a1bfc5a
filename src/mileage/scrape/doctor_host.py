"""HostWatch: looks at a server's processes, its clients and its machine while it is watched."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import psutil

from mileage.core.errors import EngineError
from mileage.doctor.collect.host_facts import HostLook, RoleUse
from mileage.scrape.cgroup_use import CgroupUse
from mileage.scrape.server_use_process import ServerProcesses, find_server
from mileage.scrape.thread_use import ThreadUse
from mileage.wire.url import origin

__all__ = ["HostWatch"]

_PERIOD_S: Final = 1.0
_STOP_WAIT_S: Final = 5.0
_OTHERS_MAX: Final = 4_096


class HostWatch:
    """Samples once a second in a thread from `start` to `stop`. Nothing in it raises: what cannot
    be seen is absent, and `missing` says why."""

    def __init__(
        self,
        url: str,
        engine_urls: Sequence[str] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
        period_s: float = _PERIOD_S,
    ) -> None:
        self._url, self._engine_urls = url, tuple(engine_urls)
        self._clock, self._period_s = clock, period_s
        self._server = ServerProcesses(())
        self._threads: ThreadUse | None = None
        self._cgroup: CgroupUse | None = None
        self._quota: float | None = None
        self._cpu_s: dict[int, tuple[float, float]] = {}
        self._times: tuple[float, float] | None = None
        self._looks: list[HostLook] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="host-watch", daemon=True)
        self.missing: dict[str, str] = {}

    def start(self) -> None:
        """Find the processes and begin; where they are not on this machine nothing is watched."""
        try:
            self._server = find_server(self._url, self._engine_urls)
        except EngineError as error:
            self.missing["host"] = error.message
            return
        pids = [process.pid for process in self._server.engine]
        self._threads = ThreadUse(pids)
        if pids:
            self._cgroup = CgroupUse(pids[0])
            self._quota = self._cgroup.quota_cores()
        self.look()  # the first one has nothing to compare with
        self._thread.start()

    def stop(self) -> list[HostLook]:
        """End, with a last look."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_WAIT_S)
        if self._threads is not None:
            self._threads.close()
        return self._looks

    def _run(self) -> None:
        while not self._ending.wait(self._period_s):
            self._looks.append(self.look())

    def look(self) -> HostLook:
        """All of it now, as rates since the look before."""
        at_s = self._clock()
        self._server = self._server.refreshed()
        clients, connections = self._clients()
        own = {os.getpid()}
        named = {p.pid for p in (*self._server.engine, *self._server.gateway, *clients)}
        roles = {
            "engine": self._use(self._server.engine, at_s),
            "gateway": self._use(self._server.gateway, at_s),
            "client": self._use([p for p in clients if p.pid not in own], at_s),
        }
        roles["other"] = self._others(named | own, at_s)
        if self._threads is not None:
            wait = self._threads.look(at_s).wait_max_ratio
            roles["engine"] = _with_wait(roles["engine"], wait)
        throttled = self._cgroup.look(at_s).throttled_ratio if self._cgroup is not None else None
        return HostLook(
            at_s=at_s,
            roles={name: use for name, use in roles.items() if use.processes},
            cpus=psutil.cpu_count() or 1,
            cpus_allowed=self._allowed(),
            cpu_quota=self._quota,
            throttled_ratio=throttled,
            io_wait_ratio=self._io_wait(),
            uptime_s=self._uptime(),
            client_connections=connections,
        )

    def _use(self, processes: Iterable[psutil.Process], at_s: float) -> RoleUse:
        cores: list[float] = []
        rss = threads = count = 0
        for process in processes:
            with contextlib.suppress(psutil.Error), process.oneshot():
                times = process.cpu_times()
                count += 1
                rss += process.memory_info().rss
                threads = max(threads, process.num_threads())
                rate = self._rate(process.pid, times.user + times.system, at_s)
                if rate is not None:
                    cores.append(rate)
        return RoleUse(
            cores=sum(cores) if cores else None,
            busiest_cores=max(cores, default=None),
            rss_bytes=rss if count else None,
            threads_max=threads if count else None,
            processes=count,
        )

    def _others(self, named: set[int], at_s: float) -> RoleUse:
        """Every other process of the machine: what they use is not there for the engine."""
        cores: list[float] = []
        count = 0
        for pid in psutil.pids()[:_OTHERS_MAX]:
            if pid in named:
                continue
            with contextlib.suppress(psutil.Error):
                times = psutil.Process(pid).cpu_times()
                count += 1
                rate = self._rate(pid, times.user + times.system, at_s)
                if rate is not None:
                    cores.append(rate)
        return RoleUse(
            cores=sum(cores) if cores else None,
            busiest_cores=max(cores, default=None),
            processes=count,
        )

    def _rate(self, pid: int, cpu_s: float, at_s: float) -> float | None:
        before = self._cpu_s.get(pid)
        self._cpu_s[pid] = (cpu_s, at_s)
        if before is None or at_s <= before[1] or cpu_s < before[0]:
            return None
        return (cpu_s - before[0]) / (at_s - before[1])

    def _clients(self) -> tuple[list[psutil.Process], int | None]:
        """Processes of this machine with connections to the port; connections from anywhere."""
        _, _, port = origin(self._url)
        try:
            found = psutil.net_connections("tcp")
        except (psutil.Error, OSError):
            return [], None
        open_ones = [c for c in found if c.status == psutil.CONN_ESTABLISHED and c.raddr]
        serving = {p.pid for p in (*self._server.engine, *self._server.gateway)}
        pids = {c.pid for c in open_ones if c.raddr.port == port and c.pid} - serving
        processes = []
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                processes.append(psutil.Process(pid))
        return processes, sum(c.laddr.port == port for c in open_ones)

    def _allowed(self) -> float | None:
        """CPUs that the engine may run on: its affinity, or less by its quota."""
        for process in self._server.engine:
            with contextlib.suppress(psutil.Error):
                allowed = float(len(process.cpu_affinity() or ()))
                return min(allowed, self._quota) if self._quota is not None else allowed
        return None

    def _io_wait(self) -> float | None:
        times = psutil.cpu_times()
        wait_s, all_s = float(getattr(times, "iowait", 0.0)), float(sum(times))
        before, self._times = self._times, (wait_s, all_s)
        if before is None or all_s <= before[1]:
            return None
        return max(0.0, float(wait_s - before[0]) / float(all_s - before[1]))

    def _uptime(self) -> float | None:
        started = []
        for process in self._server.roots or self._server.engine:
            with contextlib.suppress(psutil.Error):
                started.append(process.create_time())
        return time.time() - min(started) if started else None


def _with_wait(use: RoleUse, wait_ratio: float | None) -> RoleUse:
    return RoleUse(
        cores=use.cores,
        busiest_cores=use.busiest_cores,
        rss_bytes=use.rss_bytes,
        threads_max=use.threads_max,
        processes=use.processes,
        run_queue_wait_ratio=wait_ratio,
    )
