"""The machine: what it is, how busy each core was, and how many files a process may open."""

from __future__ import annotations

import datetime
import os
import platform
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["CoreTimes", "core_times", "describe", "parse_core_times", "pinned", "raise_file_limit"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class CoreTimes:
    """CPU seconds of one core since boot. `stolen_s`: taken by the hypervisor for others."""

    busy_s: float
    stolen_s: float

    def __sub__(self, earlier: CoreTimes) -> CoreTimes:
        return CoreTimes(self.busy_s - earlier.busy_s, self.stolen_s - earlier.stolen_s)


def parse_core_times(text: str, ticks_per_s: int) -> dict[int, CoreTimes]:
    """Times by core from the text of /proc/stat."""
    cores: dict[int, CoreTimes] = {}
    for line in text.splitlines():
        name, *fields = line.split()
        if not (name.startswith("cpu") and name[3:].isdigit()):
            continue
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
        busy = user + nice + system + irq + softirq
        cores[int(name[3:])] = CoreTimes(busy / ticks_per_s, steal / ticks_per_s)
    return cores


def core_times() -> dict[int, CoreTimes]:
    """Times by core, now."""
    return parse_core_times(Path("/proc/stat").read_text(), _TICKS_PER_S)


def describe() -> dict[str, object]:
    """What a reader must know of the machine to compare figures."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date_utc": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Run on `core` alone inside the block; programs started there stay on it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def raise_file_limit(wanted: int) -> int:
    """Raise the limit on open files to `wanted`, or as far as allowed; gives the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limits in ((wanted, max(hard, wanted)), (min(wanted, hard), hard)):
        if soft >= wanted:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        except (ValueError, OSError):
            continue
        soft = limits[0]
    return soft
