"""How much of the machine went to programs that have no part in a run."""

from __future__ import annotations

import os
import time
from contextlib import suppress

import psutil

from benchmarks.support.machine import core_times

__all__ = ["ForeignWatch"]

_FOREIGN_RATIO_MAX = 0.05


class ForeignWatch:
    """Watches all cores that this process may use, since it was made."""

    def __init__(self) -> None:
        self._start = self._read()

    def doubts(self, name: str) -> list[str]:
        """What disturbed the run since then, one sentence each; none on a quiet machine."""
        wall_s, busy_s, stolen_s, own_s = (
            now - then for now, then in zip(self._read(), self._start, strict=True)
        )
        cores = os.cpu_count() or 1
        found = []
        for text, seconds in (
            ("other programs", max(0.0, busy_s - own_s)),
            ("the hypervisor", stolen_s),
        ):
            ratio = seconds / (wall_s * cores)
            if ratio > _FOREIGN_RATIO_MAX:
                found.append(f"{name}: {text} took {ratio:.0%} of the machine")
        return found

    def _read(self) -> tuple[float, float, float, float]:
        """Time; busy and stolen time of all cores; CPU time of this process and all below it."""
        cores = core_times().values()
        own = psutil.Process()
        own_s = 0.0
        for process in (own, *own.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                own_s += times.user + times.system + times.children_user + times.children_system
        return (
            time.monotonic(),
            sum(core.busy_s for core in cores),
            sum(core.stolen_s for core in cores),
            own_s,
        )
