"""How many CPU cores this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ["cores"]

_TOPOLOGY = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup/cpu.max")


def cores(topology: Path = _TOPOLOGY, cgroup: Path = _CGROUP) -> int:
    """Physical cores of this process's affinity, at most the quota of its control group.

    The two threads of one core share its vector units, so llama.cpp gains nothing from a second;
    and its threads wait for each other at every step, so one too many slows all.
    """
    allowed = os.sched_getaffinity(0)
    count = len({_core_of(cpu, topology) for cpu in allowed})
    quota = _quota(cgroup)
    return max(1, count if quota is None else min(count, math.ceil(quota)))


def _core_of(cpu: int, topology: Path) -> str:
    try:
        return (topology / f"cpu{cpu}" / "topology" / "core_cpus_list").read_text(encoding="ascii")
    except OSError:
        return f"unknown {cpu}"


def _quota(cgroup: Path) -> float | None:
    try:
        quota, period = cgroup.read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None  # no control group version 2, or "max"
