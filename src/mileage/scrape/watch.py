"""Watch: the health checks and scrapes of one replica, told as core events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random

import msgspec

from mileage.core.errors import EngineError
from mileage.core.events import Event, Observed, ReplicaDown, ReplicaUp
from mileage.core.replica import ReplicaView
from mileage.scrape.busy import BusySource
from mileage.scrape.health import Health
from mileage.scrape.inquiry import Inquiry, NoMetricsError, NotReadyError
from mileage.scrape.kv_cache import KvCache
from mileage.scrape.model_list import ModelList
from mileage.scrape.target import PollStatus, PollTarget
from mileage.wire.fetch import Fetch, FetchError
from mileage.wire.url import display_url

__all__ = ["Watch"]

BACKOFF_MAX_S = 60.0
BUSY_AGE_MAX_INTERVALS = 3
"""A reading of how busy the compute is joins no view after this many intervals."""
JITTER = 0.1
"""Every wait is drawn from this share around its length, so that replicas do not march in step."""
_NOTHING = ModelList(())
_LOG = logging.getLogger(__name__)


class Watch:
    """Watches one replica until stopped; see `Poller` for what it promises."""

    def __init__(
        self,
        target: PollTarget,
        *,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        rng: Random,
        fetch: Fetch,
        busy: BusySource | None = None,
        cache: KvCache | None = None,
    ) -> None:
        self.target = target
        self._emit, self._clock, self._rng, self._busy = emit, clock, rng, busy
        self._cache = cache
        self._inquiry = Inquiry(target, fetch)
        self._health = Health(failures_max=target.failures_max, timeouts_max=target.timeouts_max)
        self._models: ModelList | None = None
        self._loading = False
        self._served = False
        self._said: ReplicaUp | ReplicaDown | None = None
        self._check_now, self._scrape_now = asyncio.Event(), asyncio.Event()
        self._busy_now = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._fresh = True
        self._backoff_s = target.scrape_interval_s
        self._view: ReplicaView | None = None
        self._has_metrics = bool(target.metrics_urls)
        self._busy_read: tuple[float, float] | None = None
        self._busy_error: str | None = None
        self._version: str | None = None
        self._metrics_kind: str | None = None
        self._checked_s: float | None = None
        self._health_error: str | None = None
        self._scrape_error: str | None = None
        self._checks_failed = self._scrapes = self._scrapes_failed = self._lines_bad = 0

    def start(self) -> None:
        """Begin; needs a running event loop."""
        target = self.target
        steps = [(self._check, self._check_now, target.health_interval_s)]
        if target.metrics_urls:
            steps.append((self._scrape, self._scrape_now, target.scrape_interval_s))
        if self._busy is not None:
            steps.append((self._read_busy, self._busy_now, target.scrape_interval_s))
        self._tasks = [asyncio.create_task(self._repeat(*step)) for step in steps]
        if self._cache is not None:
            self._cache.start()

    async def stop(self) -> None:
        """End; returns when nothing of it runs any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._busy is not None:
            self._busy.close()
        if self._cache is not None:
            await self._cache.stop()

    def check_now(self) -> None:
        """Do the next health check at once."""
        self._check_now.set()

    def events(self) -> tuple[Event, ...]:
        """The events that bring a newcomer up to date."""
        said: tuple[Event, ...] = () if self._said is None else (self._said,)
        return said if self._view is None else (*said, Observed(self._view))

    def status(self) -> PollStatus:
        """What is known now."""
        target, view = self.target, self._view
        return PollStatus(
            name=target.name,
            kind=target.kind,
            url=display_url(target.url),
            state=self._health.state,
            models=(self._models or _NOTHING).names,
            adapters=(self._models or _NOTHING).adapters,
            loading=self._loading,
            version=self._version,
            health_error=self._health_error,
            checked_s=self._checked_s,
            checks_failed=self._checks_failed,
            metrics_kind=self._metrics_kind,
            scrape_age_s=None if view is None else view.age_s(self._clock()),
            scrapes=self._scrapes,
            scrapes_failed=self._scrapes_failed,
            scrape_error=self._scrape_error,
            lines_bad=self._lines_bad,
            view=view,
            busy_error=self._busy_error,
        )

    async def _repeat(
        self, step: Callable[[], Awaitable[float]], wake: asyncio.Event, interval_s: float
    ) -> None:
        """Run `step` for ever, each time after the wait it asked for, or when woken."""
        while True:
            try:
                wait_s = await step()
            except Exception:  # a bug, or an `emit` that raised: one replica must not go unwatched
                _LOG.exception("%s: watching went wrong, and goes on", self.target.name)
                wait_s = interval_s
            wait_s *= self._rng.uniform(1 - JITTER, 1 + JITTER)
            try:
                async with asyncio.timeout(wait_s):
                    await wake.wait()
            except TimeoutError:
                pass
            wake.clear()

    async def _check(self) -> float:
        try:
            self._models, self._health_error = await self._inquiry.models(self._models)
        except EngineError as error:
            self._checks_failed += 1
            self._health_error = str(error)
            self._note_loading(error)
            timed_out = isinstance(error, FetchError) and error.kind == "timeout"
            if self._health.failed(timed_out=timed_out):
                self._models = None  # what it serves after a restart is for it to say
                self._inquiry.forget()
        else:
            self._served, self._loading = True, False
            if self._health.succeeded():
                self._fresh = True
                self._scrape_now.set()
        self._checked_s = self._clock()
        self._announce()
        return self.target.health_interval_s

    def _note_loading(self, error: EngineError) -> None:
        """One that says 503 is loading, unless it has served since it began to answer."""
        if isinstance(error, NotReadyError):
            self._loading = not self._served
        elif not (isinstance(error, FetchError) and error.kind == "timeout"):
            self._served = self._loading = False

    def _announce(self) -> None:
        """Say what changed; what could not be said (`emit` raised) is said after the next check."""
        said, name, state = self._said, self.target.name, self._health.state
        event: ReplicaUp | ReplicaDown
        if state == "up":
            event = ReplicaUp(name, *(self._models or _NOTHING))
            if isinstance(said, ReplicaUp) and _alike(said, event):
                return
        elif state == "down" and not isinstance(said, ReplicaDown):
            event = ReplicaDown(name, self._health_error or "unknown")
        else:
            return
        self._emit(event)
        self._said = event

    async def _scrape(self) -> float:
        if self._health.state != "up":
            return BACKOFF_MAX_S  # coming up wakes it
        interval_s = self.target.scrape_interval_s
        if self._fresh:
            self._fresh, self._backoff_s = False, interval_s
            await self._learn_version()
        self._scrapes += 1
        try:
            reading = await self._inquiry.metrics(self._clock)
        except EngineError as error:
            self._scrapes_failed += 1
            self._scrape_error = str(error)
            if not isinstance(error, NoMetricsError):
                return interval_s
            self._has_metrics = False
            self._backoff_s = min(2 * self._backoff_s, max(BACKOFF_MAX_S, interval_s))
            return self._backoff_s
        self._scrape_error, self._backoff_s = None, interval_s
        self._metrics_kind = reading.kind
        self._lines_bad += reading.lines_bad
        self._has_metrics = reading.figures > 0
        if self._has_metrics:
            ratio = self._busy_ratio()
            view = reading.view
            if ratio is not None:
                view = msgspec.structs.replace(view, compute_busy_ratio=ratio)
            self._observed(view)
        return interval_s

    def _observed(self, view: ReplicaView) -> None:
        if self._cache is not None:
            view = self._cache.complete(view)
        self._view = view
        self._emit(Observed(view))

    async def _read_busy(self) -> float:
        """Read how busy the compute is; the next view has it.

        Where the engine has no metrics, a view has it alone.
        """
        assert self._busy is not None
        interval_s = self.target.scrape_interval_s
        if self._health.state != "up":
            self._busy_read = None
            return interval_s
        asked_s = self._clock()
        try:
            ratio = await self._busy.read()
        except EngineError as error:
            self._busy_read, self._busy_error = None, str(error)
            return interval_s
        self._busy_read = None if ratio is None else (ratio, asked_s)
        self._busy_error = None
        if ratio is not None and not self._has_metrics:
            self._observed(
                ReplicaView(replica=self.target.name, observed_s=asked_s, compute_busy_ratio=ratio)
            )
        return interval_s

    def _busy_ratio(self) -> float | None:
        """The last reading, unless it failed or is old."""
        if self._busy_read is None:
            return None
        ratio, read_s = self._busy_read
        age_max_s = BUSY_AGE_MAX_INTERVALS * self.target.scrape_interval_s
        return ratio if self._clock() - read_s <= age_max_s else None

    async def _learn_version(self) -> None:
        try:
            self._version = await self._inquiry.version()
        except EngineError:
            self._version = None


def _alike(one: ReplicaUp, other: ReplicaUp) -> bool:
    """They say the same, in whatever order."""
    return set(one.models) == set(other.models) and set(one.adapters) == set(other.adapters)
