"""GcWatch: collections of this process's own garbage collector, with their time."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable

from mileage.measure.tail_host import Pause

__all__ = ["GcWatch"]

_LEAST_S = 0.0005
_KEPT_MAX = 10_000


class GcWatch:
    """Keeps the collections of half a millisecond or more, from `start` to `stop`."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s: float | None = None
        self._pauses: list[Pause] = []

    def start(self) -> None:
        """Begin."""
        gc.callbacks.append(self._collected)

    def stop(self) -> list[Pause]:
        """End; the pauses, on the clock's time."""
        gc.callbacks.remove(self._collected)
        return self._pauses

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        now_s = self._clock()
        if phase == "start":
            self._began_s = now_s
            return
        began_s, self._began_s = self._began_s, None
        if began_s is None or now_s - began_s < _LEAST_S or len(self._pauses) >= _KEPT_MAX:
            return
        self._pauses.append(
            Pause(
                cause="gc",
                role="generator",
                start_s=began_s,
                end_s=now_s,
                busy_s=now_s - began_s,
                pid=os.getpid(),
                detail=f"generation {info['generation']}",
            )
        )
