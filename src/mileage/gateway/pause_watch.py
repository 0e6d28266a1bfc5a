"""PauseWatch: how long garbage collection and a busy event loop keep a worker from its requests."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

import msgspec

from mileage.measure.metrics import Counter, Families, Histogram

__all__ = ["LongPause", "PauseMetrics", "PauseWatch"]

_TICK_S = 0.05
_LONG_S = 0.005
_KEPT = 256
_KEPT_S = 60.0
_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class LongPause(msgspec.Struct, frozen=True, kw_only=True):
    """One pause of 5 ms or more, from when on and for how long."""

    kind: Literal["gc", "event_loop"]
    at_utc_s: float
    length_s: float
    generation: int | None = None
    """Of a collection: 0 to 2, 2 being the whole heap."""


class PauseMetrics(Families):
    """All pauses, short ones too."""

    def __init__(self) -> None:
        self.lag = Histogram(
            "mileage_event_loop_lag_seconds",
            "By how much a worker's event loop was late, asked 20 times a second.",
            bounds=_BOUNDS,
        )
        self.gc_s = Counter(
            "mileage_gc_pause_seconds_total",
            "Time that workers spent in garbage collection.",
            ("generation",),
        )
        self.gc_count = Counter(
            "mileage_gc_pauses_total", "Garbage collections of workers.", ("generation",)
        )


class PauseWatch:
    """Watches the process from `start` to `stop`; the longest-ago pauses are forgotten first.

    The loop is asked to call at a given time again and again: by how much the call is late is how
    long it was busy with something else, less what was over before the call was due (up to 50 ms).
    """

    def __init__(
        self,
        metrics: PauseMetrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._metrics, self._clock, self._wall = metrics, clock, wall
        self._lag = metrics.lag.series()
        self._recent: deque[LongPause] = deque(maxlen=_KEPT)
        self._collecting_s: float | None = None
        self._tick: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin; `loop` is the one that requests are served on."""
        gc.callbacks.append(self._collected)
        self._ask(loop)

    def stop(self) -> None:
        """End; twice is fine."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
            gc.callbacks.remove(self._collected)

    def recent(self) -> tuple[LongPause, ...]:
        """The long pauses of the last minute, at most 256 of them, as they ended."""
        since_s = self._wall() - _KEPT_S
        return tuple(pause for pause in self._recent if pause.at_utc_s >= since_s)

    def _ask(self, loop: asyncio.AbstractEventLoop) -> None:
        due_s = self._clock() + _TICK_S
        self._tick = loop.call_later(_TICK_S, self._called, loop, due_s)

    def _called(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        late_s = max(0.0, self._clock() - due_s)
        self._lag.observe(late_s)
        if late_s >= _LONG_S:
            self._keep("event_loop", late_s)
        self._ask(loop)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        """What the collector calls before and after each collection, on any thread."""
        now_s = self._clock()
        if phase == "start":
            self._collecting_s = now_s
        elif self._collecting_s is not None:
            length_s, generation = now_s - self._collecting_s, info["generation"]
            self._collecting_s = None
            labels = (str(generation),)
            self._metrics.gc_s.add(labels, length_s)
            self._metrics.gc_count.add(labels)
            if length_s >= _LONG_S:
                self._keep("gc", length_s, generation)

    def _keep(
        self, kind: Literal["gc", "event_loop"], length_s: float, generation: int | None = None
    ) -> None:
        self._recent.append(
            LongPause(
                kind=kind,
                at_utc_s=self._wall() - length_s,
                length_s=length_s,
                generation=generation,
            )
        )
