"""How many CPU cores this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ["cores"]


def cores() -> int:
    """Cores that this process may use: its affinity, and the quota of its control group."""
    count = len(os.sched_getaffinity(0))
    quota = _cgroup_cores()
    return max(1, count if quota is None else min(count, math.ceil(quota)))


def _cgroup_cores() -> float | None:
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None  # no control group version 2, or "max"
