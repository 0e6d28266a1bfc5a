"""The host of a server: what its cores, memory and processes are at; also in place of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

from mileage.core.errors import EngineError
from mileage.measure.gpu_checks import checked
from mileage.measure.gpu_sample import GpuId, GpuSample
from mileage.measure.serving_host import HostMoment
from mileage.scrape.cgroup_use import CgroupLook, CgroupUse
from mileage.scrape.host_totals import HostTotals
from mileage.scrape.memory_traffic import MemoryTraffic
from mileage.scrape.server_use_cpu import cores_of
from mileage.scrape.server_use_energy import RaplEnergy
from mileage.scrape.thread_use import ThreadLook, ThreadUse

__all__ = ["HostTelemetry"]

_RARELY: Final = 10
_SEEK_S: Final = 5.0
_SEEK_MAX_S: Final = 60.0
"""Looking for processes reads those of the whole machine."""
_GB: Final = 1e9


class HostTelemetry:
    """Looks at the host and the processes of a server; `find` tells them by role (`engine`,
    `gateway`), and is asked again when they are gone: after five seconds, then less and less often.

    With `as_gpu` each look has a GpuSample of basis "cpu", too: the engine's cores stand for
    multiprocessors (`sm_active_ratio`), its busiest thread for the time in which something ran
    (`gpu_util_ratio`: at least that long), its memory for device memory; RAPL counts the energy of
    the whole machine. Memory bandwidth is known with resctrl and `memory_gb_per_s`.
    """

    period_min_s = 0.1

    def __init__(
        self,
        find: Callable[[], Mapping[str, Sequence[int]]],
        *,
        as_gpu: bool,
        memory_gb_per_s: float | None = None,
        proc: Path = Path("/proc"),
        cgroups: Path = Path("/sys/fs/cgroup"),
        rapl: RaplEnergy | None = None,
        traffic: MemoryTraffic | None = None,
    ) -> None:
        self._find, self._as_gpu, self._proc, self._cgroups = find, as_gpu, proc, cgroups
        self._memory_gb_per_s = memory_gb_per_s
        self._rapl = rapl or RaplEnergy()
        self._traffic = traffic or MemoryTraffic()
        self._has_rapl = as_gpu
        self._energy_j: float | None = None
        self._totals = HostTotals(proc)
        self._engine = self._gateway = ThreadUse(())
        self._groups: CgroupUse | None = None
        self._group_look = CgroupLook(None, None, None)
        self._pids: Sequence[int] = ()
        self._cores = 1.0
        self._rss_bytes: int | None = None
        self._memory_bytes = int(psutil.virtual_memory().total)
        self._sought_s: float | None = None
        self._seek_wait_s = _SEEK_S
        self._looks = 0

    def read(self, at_s: float) -> tuple[HostMoment | GpuSample, ...]:
        """One look. Raises EngineError where the server has no process here, if one is needed."""
        self._seek(at_s)
        rare = self._looks % _RARELY == 0
        self._looks += 1
        engine, gateway = self._engine.look(at_s), self._gateway.look(at_s)
        if rare and self._groups is not None:
            self._group_look = self._groups.look(at_s)
        moment = self._moment(at_s, engine, gateway)
        if not self._as_gpu:
            return (moment,)
        if rare:
            self._rss_bytes = _rss(self._pids)
            self._read_energy()
        return moment, self._sample(at_s, engine)

    def close(self) -> None:
        """No read follows."""
        self._engine.close()
        self._gateway.close()
        self._totals.close()

    def _seek(self, at_s: float) -> None:
        if self._pids and not self._engine.is_gone:
            return
        if self._sought_s is None or at_s - self._sought_s >= self._seek_wait_s:
            repeated = self._sought_s is not None and not self._pids
            self._seek_wait_s = min(_SEEK_MAX_S, 2 * self._seek_wait_s) if repeated else _SEEK_S
            self._sought_s = at_s
            found = self._find()
            self._engine.close()
            self._gateway.close()
            self._pids = tuple(found.get("engine", ()))
            self._engine = ThreadUse(self._pids, proc=self._proc)
            self._gateway = ThreadUse(found.get("gateway", ()), proc=self._proc)
            self._groups = None
            if self._pids:
                self._cores = cores_of(self._pids[0], self._proc, self._cgroups)
                self._groups = CgroupUse(self._pids[0], proc=self._proc, cgroups=self._cgroups)
        if self._as_gpu and (not self._pids or self._engine.is_gone):
            raise EngineError("host", "the engine has no process on this machine")

    def _moment(self, at_s: float, engine: ThreadLook, gateway: ThreadLook) -> HostMoment:
        cpu, core_max, switches = self._totals.read(at_s)
        looks = [look for look in (engine, gateway) if look.busiest_ratio is not None]
        busiest = max(looks, key=lambda look: look.busiest_ratio or 0.0, default=None)
        waits = [look.wait_max_ratio for look in looks if look.wait_max_ratio is not None]
        pressure = self._totals.pressure(at_s)
        return HostMoment(
            at_s=at_s,
            cpu_ratio=cpu,
            core_max_ratio=core_max,
            engine_cores=engine.cores,
            thread_max_ratio=None if busiest is None else busiest.busiest_ratio,
            thread_name="" if busiest is None else busiest.busiest_name,
            wait_max_ratio=max(waits, default=None),
            switches_per_s=switches,
            throttled_ratio=self._group_look.throttled_ratio,
            cpu_quota_ratio=self._group_look.cpu_quota_ratio,
            memory_limit_ratio=self._group_look.memory_limit_ratio,
            pressure_cpu_ratio=pressure[0],
            pressure_memory_ratio=pressure[1],
            pressure_io_ratio=pressure[2],
        )

    def _sample(self, at_s: float, engine: ThreadLook) -> GpuSample:
        dram = None
        if self._memory_gb_per_s is not None and self._traffic.is_there:
            moved = self._traffic.read(at_s)
            dram = None if moved is None else min(1.0, moved / (self._memory_gb_per_s * _GB))
        cores = engine.cores
        return checked(
            GpuSample(
                gpu=GpuId(),
                at_s=at_s,
                basis="cpu",
                gpu_util_ratio=engine.busiest_ratio,
                sm_active_ratio=None if cores is None else min(1.0, cores / self._cores),
                dram_active_ratio=dram,
                memory_used_bytes=self._rss_bytes,
                memory_total_bytes=self._memory_bytes,
                energy_j=self._energy_j,
                pids=tuple(self._pids),
            )
        )

    def _read_energy(self) -> None:
        if not self._has_rapl:
            return
        try:
            used_j = self._rapl.read()
        except EngineError:
            self._has_rapl, self._energy_j = False, None
            return
        self._energy_j = (self._energy_j or 0.0) + (used_j or 0.0)


def _rss(pids: Sequence[int]) -> int | None:
    """What processes share is counted for each of them."""
    total = 0
    for pid in pids:
        try:
            total += int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:
            return None
    return total
