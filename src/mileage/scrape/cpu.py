"""CPU: the share of its CPU cores that an engine's process uses."""

from __future__ import annotations

from collections.abc import Callable

import psutil

from mileage.core.errors import EngineError

__all__ = ["CpuSource"]


class CpuSource:
    """CPU seconds of a process per second and thread, between two readings.

    `pid` tells the process now, None while there is none; `threads` is how many it computes with.
    Threads that wait for each other in a loop count as in use, as llama.cpp's do: one request alone
    may read near 1.
    """

    def __init__(
        self,
        pid: Callable[[], int | None],
        threads: int,
        *,
        clock: Callable[[], float],
        cpu_s: Callable[[int], float] | None = None,
    ) -> None:
        self._pid, self._threads, self._clock = pid, threads, clock
        self._cpu_s = cpu_s or _process_cpu_s
        self._last: tuple[int, float, float] | None = None

    async def read(self) -> float | None:
        """Share since the last reading; None the first time for a process. Raises EngineError."""
        pid, last = self._pid(), self._last
        self._last = None
        if pid is None:
            raise EngineError("cpu", "the engine has no process now")
        used_s, now_s = self._cpu_s(pid), self._clock()
        self._last = pid, used_s, now_s
        if last is None or last[0] != pid or now_s <= last[2] or used_s < last[1]:
            return None
        return min(1.0, (used_s - last[1]) / (now_s - last[2]) / self._threads)

    def close(self) -> None:
        """Nothing is held."""


def _process_cpu_s(pid: int) -> float:
    """CPU seconds that a process has used, in user and in system mode."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error as error:
        raise EngineError("cpu", f"the engine's process cannot be read: {error}") from error
    return float(times.user + times.system)
