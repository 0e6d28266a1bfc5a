"""Watch: how the two cores were used over a stretch of time, and by whom."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.support.machine import core_times
from benchmarks.support.stacks import Stack

__all__ = ["GATEWAY_CORE", "LOAD_CORE", "CoreUse", "Watch"]

GATEWAY_CORE = 0
"""Where the stack under test runs, with all its processes."""
LOAD_CORE = 1
"""Where upstream and load generator run."""


@dataclass(frozen=True, slots=True)
class CoreUse:
    """Shares of wall time. `foreign_ratio`: programs that are not under test, on its core."""

    stack_ratio: float
    foreign_ratio: float
    load_core_ratio: float
    stolen_ratio: float
    cpu_s: float


class Watch:
    """The use of the cores since it was made."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._cpu_s, self._cores, self._at_s = stack.cpu_s(), core_times(), time.monotonic()

    def read(self) -> CoreUse:
        """Shares of the time since the watch was made."""
        wall_s = time.monotonic() - self._at_s
        cores = core_times()
        cpu_s = self._stack.cpu_s() - self._cpu_s
        gateway = cores[GATEWAY_CORE] - self._cores[GATEWAY_CORE]
        load = cores[LOAD_CORE] - self._cores[LOAD_CORE]
        return CoreUse(
            stack_ratio=cpu_s / wall_s,
            foreign_ratio=max(0.0, gateway.busy_s - cpu_s) / wall_s,
            load_core_ratio=load.busy_s / wall_s,
            stolen_ratio=(gateway.stolen_s + load.stolen_s) / wall_s,
            cpu_s=cpu_s,
        )
