"""TelemetrySampler: looks at one source again and again, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from mileage.core.errors import MileageError
from mileage.scrape.telemetry_pace import Pace

__all__ = ["SamplerStatus", "TelemetrySampler", "TelemetrySource"]

_LOG = logging.getLogger(__name__)
_COST_RATIO_MAX: Final = 0.01
_LOOKS_MAX: Final = 6_000
"""Ten minutes at 100 ms."""
_STOP_WAIT_S: Final = 2.0

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class TelemetrySource(Protocol[T_co]):
    """What is looked at. All calls come from one thread, and may block."""

    @property
    def period_min_s(self) -> float:
        """Looking more often than this tells nothing new."""
        ...

    def read(self, at_s: float) -> Sequence[T_co]:
        """One look, dated `at_s`. Raises MileageError where nothing can be seen now."""
        ...

    def close(self) -> None:
        """No read follows."""
        ...


class SamplerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How sampling goes."""

    looks: int
    failed: int
    """Looks that saw nothing."""
    dropped: int
    """Looks that the ring had no more room for: the oldest go first."""
    error: str | None
    """Why the last look saw nothing; None where it did."""
    period_s: float
    """Between looks, now."""
    cpu_ratio: float
    """CPU time of the sampler's thread over all of its life, of one core."""
    hanging_s: float
    """For how long the look under way has not come back; 0 where none is under way."""


class TelemetrySampler(Generic[T]):
    """Looks every `period_s` from `start` to `stop`, and keeps the last looks in a ring.

    The CPU time of its thread is measured at each look; where that would be more than
    `cost_ratio_max` of a core, at each look or over all of them, it looks less often
    (`SamplerStatus.period_s`). A source that hangs
    holds up this thread and nothing else: no second call is made to it, `status` tells for how long
    it hangs, and `stop` does not wait for it. `sink` is told each look, in the sampler's thread.
    """

    def __init__(
        self,
        source: TelemetrySource[T],
        *,
        name: str,
        period_s: float = 0.1,
        cost_ratio_max: float = _COST_RATIO_MAX,
        looks_max: int = _LOOKS_MAX,
        sink: Callable[[Sequence[T]], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """`wait` sleeps so many seconds, and tells whether to end; by default until `stop`."""
        self._source, self._name, self._sink = source, name, sink
        self._clock, self._cpu_clock = clock, cpu_clock
        self._pace = Pace(max(period_s, source.period_min_s), cost_ratio_max=cost_ratio_max)
        self._cost_ratio_max = cost_ratio_max
        self._ring: deque[Sequence[T]] = deque(maxlen=looks_max)
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._wait = wait or self._ending.wait
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._looks = self._failed = self._dropped = 0
        self._error: str | None = None
        self._began_s = self._cpu_s = 0.0
        self._looking_since_s: float | None = None

    def start(self) -> None:
        """Begin; the first look is taken at once, in the thread."""
        self._began_s = self._clock()
        self._thread.start()

    def end(self) -> None:
        """End after the look under way, which is not waited for."""
        self._ending.set()

    def stop(self, wait_s: float = _STOP_WAIT_S) -> SamplerStatus:
        """End after the look under way; waits so long for it at most."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(wait_s)
        return self.status()

    @property
    def ended(self) -> bool:
        """Whether its thread is gone: neither source nor `sink` is called any more."""
        return not self._thread.is_alive()

    def samples(self) -> list[T]:
        """All that the ring holds, in order of time. Never blocks for long."""
        with self._lock:
            looks = list(self._ring)
        return [sample for look in looks for sample in look]

    def status(self) -> SamplerStatus:
        """How it goes, now."""
        now_s = self._clock()
        since_s = self._looking_since_s
        lasted_s = now_s - self._began_s
        return SamplerStatus(
            looks=self._looks,
            failed=self._failed,
            dropped=self._dropped,
            error=self._error,
            period_s=self._pace.period_s,
            cpu_ratio=self._cpu_s / lasted_s if lasted_s > 0.0 else 0.0,
            hanging_s=0.0 if since_s is None else max(0.0, now_s - since_s),
        )

    def _run(self) -> None:
        thread_s = self._cpu_clock()
        due_s = self._clock()
        try:
            while not self._ending.is_set():
                began_s = self._cpu_clock()
                worked = self._look()
                ended_s = self._cpu_clock()
                self._cpu_s = ended_s - thread_s
                self._pace.looked(ended_s - began_s, failed=not worked)
                # A look that came late is not made up for: the next is a period after now.
                due_s = max(due_s + self._gap_s(), self._clock())
                if self._wait(max(0.0, due_s - self._clock())):
                    break
        finally:
            self._source.close()

    def _gap_s(self) -> float:
        """The pace, and a part of what is overdrawn: opening a source may cost as much as a
        hundred looks, and is paid off by looking a little less often for a while."""
        period_s = self._pace.period_s
        lasted_s = self._clock() - self._began_s
        overdrawn_s = self._cpu_s / self._cost_ratio_max - lasted_s
        return period_s + min(period_s / 2, max(0.0, overdrawn_s - period_s))

    def _look(self) -> bool:
        self._looking_since_s = at_s = self._clock()
        try:
            look = self._source.read(at_s)
            if self._sink is not None:
                self._sink(look)
        except MileageError as error:
            self._error = str(error)
        except Exception as error:  # a bug of ours: what we stand beside goes on
            if self._error is None:
                _LOG.exception("%s: a look went wrong", self._name)
            self._error = f"a look went wrong: {error!r}"
        else:
            self._error = None
            with self._lock:
                self._dropped += len(self._ring) == self._ring.maxlen
                self._ring.append(look)
        finally:
            self._looks += 1
            self._looking_since_s = None
        self._failed += self._error is not None
        return self._error is None
