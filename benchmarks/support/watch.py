"""Watch: how the two cores were used over a stretch of time, and by whom."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

import psutil

from benchmarks.support.machine import CoreTimes, core_times
from benchmarks.support.stacks import Stack

__all__ = ["GATEWAY_CORE", "LOAD_CORE", "CoreUse", "Watch", "disturbances", "load_cpu_s"]

GATEWAY_CORE = 0
"""Where the stack under test runs, with all its processes."""
LOAD_CORE = 1
"""Where upstream and load generator run."""
FOREIGN_RATIO_MAX = 0.05
"""Above this share of a core in most rounds, other programs disturbed the run."""


@dataclass(frozen=True, slots=True)
class CoreUse:
    """Shares of wall time, and CPU seconds of the stack.

    `foreign_ratio`, `load_foreign_ratio`: programs that take no part, on the gateway's core and on
    the load's. `stolen_ratio`: taken by the hypervisor, of both cores.
    """

    stack_ratio: float
    foreign_ratio: float
    load_core_ratio: float
    load_foreign_ratio: float
    stolen_ratio: float
    cpu_s: float


class Watch:
    """The use of the cores since it was made."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._start = self._read()

    def _read(self) -> tuple[float, float, float, CoreTimes, CoreTimes]:
        """Time, CPU seconds of stack and load, both cores."""
        cores = core_times()
        return (
            time.monotonic(),
            self._stack.cpu_s(),
            load_cpu_s(),
            cores[GATEWAY_CORE],
            cores[LOAD_CORE],
        )

    def read(self) -> CoreUse:
        """Shares of the time since the watch was made."""
        at_s, stack_s, load_s, gateway, load_core = self._read()
        start_s, stack_start_s, load_start_s, gateway_start, load_core_start = self._start
        wall_s = at_s - start_s
        cpu_s = stack_s - stack_start_s
        gateway, load_core = gateway - gateway_start, load_core - load_core_start
        return CoreUse(
            stack_ratio=cpu_s / wall_s,
            foreign_ratio=max(0.0, gateway.busy_s - cpu_s) / wall_s,
            load_core_ratio=load_core.busy_s / wall_s,
            load_foreign_ratio=max(0.0, load_core.busy_s - load_s + load_start_s) / wall_s,
            stolen_ratio=(gateway.stolen_s + load_core.stolen_s) / wall_s,
            cpu_s=cpu_s,
        )


def load_cpu_s() -> float:
    """CPU seconds of upstream and load: this process and those children that run on their core."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            if process is own or process.cpu_affinity() == [LOAD_CORE]:
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
    return total


def disturbances(uses: Iterable[CoreUse]) -> list[str]:
    """What disturbed most rounds of a run, one sentence each; none on a quiet machine.

    A single bad round says nothing: figures are medians over the rounds.
    """
    known = list(uses)
    found = []
    for text, shares in (
        ("other programs took {:.0%} of the gateway's core", [u.foreign_ratio for u in known]),
        ("other programs took {:.0%} of the load's core", [u.load_foreign_ratio for u in known]),
        ("the hypervisor took {:.0%} of a core", [u.stolen_ratio for u in known]),
    ):
        share = median(shares or [0.0])
        if share > FOREIGN_RATIO_MAX:
            found.append(text.format(share))
    return found
