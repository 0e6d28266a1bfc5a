"""Processes of the gateway: memory and CPU time of the supervisor, its workers and engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec
import psutil

__all__ = ["ProcessSample", "ProcessSampler", "Role"]

Role: TypeAlias = Literal["supervisor", "worker", "engine"]


class ProcessSample(msgspec.Struct, frozen=True, kw_only=True):
    """One process at one moment. `cpu_ratio` is cores used since the sample before it."""

    pid: int
    role: Role
    rss_bytes: int
    cpu_s: float
    cpu_ratio: float | None = None


class ProcessSampler:
    """Samples processes by pid; CPU time per role never falls, also when a process ends."""

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}
        self._last: dict[int, tuple[float, ProcessSample]] = {}
        self._ended_cpu_s: dict[Role, float] = {}

    def sample(self, roles: Mapping[int, Role], now_s: float) -> list[ProcessSample]:
        """Sample these processes; those that are gone are left out."""
        for pid in [pid for pid in self._last if pid not in roles]:
            self._retire(pid)
        found = (self._sample(pid, role, now_s) for pid, role in roles.items())
        return [sample for sample in found if sample is not None]

    def cpu_s_by_role(self) -> dict[Role, float]:
        """CPU seconds used by each role, with those of processes that have ended."""
        totals = dict(self._ended_cpu_s)
        for _, sample in self._last.values():
            totals[sample.role] = totals.get(sample.role, 0.0) + sample.cpu_s
        return totals

    def _sample(self, pid: int, role: Role, now_s: float) -> ProcessSample | None:
        try:
            process = self._processes.get(pid)
            if process is None or not process.is_running():  # is_running sees that a pid was reused
                self._retire(pid)
                process = self._processes[pid] = psutil.Process(pid)
            with process.oneshot():
                times, rss_bytes = process.cpu_times(), process.memory_info().rss
        except (psutil.Error, OSError):
            self._retire(pid)
            return None
        cpu_s = times.user + times.system
        cpu_ratio = None
        if pid in self._last:
            before_s, before = self._last[pid]
            if now_s > before_s:
                cpu_ratio = max(0.0, (cpu_s - before.cpu_s) / (now_s - before_s))
        sample = ProcessSample(
            pid=pid, role=role, rss_bytes=rss_bytes, cpu_s=cpu_s, cpu_ratio=cpu_ratio
        )
        self._last[pid] = (now_s, sample)
        return sample

    def _retire(self, pid: int) -> None:
        self._processes.pop(pid, None)
        ended = self._last.pop(pid, None)
        if ended is not None:
            role, cpu_s = ended[1].role, ended[1].cpu_s
            self._ended_cpu_s[role] = self._ended_cpu_s.get(role, 0.0) + cpu_s
