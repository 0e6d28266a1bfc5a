"""host_facts(): the machine that a load generator ran on, for those who compare two runs."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any, Final

import psutil

__all__ = ["host_facts"]

_CPUINFO: Final = Path("/proc/cpuinfo")
_MODEL_LINES: Final = ("model name", "Hardware", "cpu model")


def host_facts() -> dict[str, Any]:
    """Processor, cores that may be used, memory, system and Python. No host name, no address.

    What cannot be found out is None.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "cpu": _cpu(),
        "cores": psutil.cpu_count(logical=True),
        "cores_usable": len(affinity(0)) if affinity is not None else None,
        "memory_bytes": int(psutil.virtual_memory().total),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "python": platform.python_version(),
    }


def _cpu() -> str | None:
    try:
        text = _CPUINFO.read_text("utf-8", "replace")
    except OSError:
        return platform.processor() or None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in _MODEL_LINES and value.strip():
            return value.strip()
    return platform.processor() or None
