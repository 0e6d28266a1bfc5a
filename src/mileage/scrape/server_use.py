"""ServerUseMeter: looks about once a second at what the server under test uses, beside a run."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

import msgspec

from mileage.measure.server_use import ServerUse, UseSeries, server_use
from mileage.scrape.server_use_sampler import UseOptions, UseSampler
from mileage.wire.fetch import Fetch, fetch

__all__ = ["ServerUseMeter", "UseOptions"]

_LOG = logging.getLogger(__name__)
_START_WAIT_S = 10.0
_STOP_WAIT_S = 10.0


class ServerUseMeter:
    """Samples in a thread with an event loop of its own, so that the run's loop is left alone.

    `start` returns when the first look is taken, `stop` when the last is; windows are told on the
    `clock` of the samples (by default time.monotonic, in seconds). Nothing that cannot be seen
    raises: the figure is None, and `missing` says why.
    """

    def __init__(
        self,
        options: UseOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        fetch: Fetch = fetch,
    ) -> None:
        self._options, self._clock, self._fetch = options, clock, fetch
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None
        self._series = UseSeries()

    async def start(self) -> None:
        """Begin to sample."""
        assert self._thread is None
        self._thread = threading.Thread(target=self._run, name="server-use", daemon=True)
        self._thread.start()
        await asyncio.to_thread(self._ready.wait, _START_WAIT_S)

    async def stop(self) -> ServerUse:
        """End, and tell the figures of all the time between the first look and the last."""
        if self._thread is not None:
            if self._loop is not None and self._ending is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._ending.set)
            await asyncio.to_thread(self._thread.join, _STOP_WAIT_S)
            self._thread = None
        samples = self._series.samples
        if not samples:
            return server_use(self._series, start_s=0.0, end_s=0.0)
        return self.between(samples[0].at_s, samples[-1].at_s)

    def series(self) -> UseSeries:
        """All samples so far."""
        return self._series

    def between(self, start_s: float, end_s: float) -> ServerUse:
        """The figures of a window that has passed."""
        return server_use(self._series, start_s=start_s, end_s=end_s)

    def _run(self) -> None:
        try:
            asyncio.run(self._watch())
        except Exception as error:  # a bug of ours: the run that we stand beside goes on
            _LOG.exception("looking at the server went wrong")
            why = f"looking at the server went wrong: {error!r}"
            self._series = msgspec.structs.replace(
                self._series,
                missing={"utilisation_ratio": why, "memory_bytes": why, "energy_j": why},
            )
        finally:
            self._ready.set()

    async def _watch(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        sampler = UseSampler(self._options, clock=self._clock, fetch=self._fetch)
        metrics = asyncio.create_task(sampler.watch_metrics())
        try:
            while not self._ending.is_set():
                due_s = self._clock() + self._options.interval_s
                await self._look(sampler)
                self._ready.set()
                try:
                    async with asyncio.timeout(max(0.0, due_s - self._clock())):
                        await self._ending.wait()
                except TimeoutError:
                    pass
            await self._look(sampler)
        finally:
            metrics.cancel()
            await asyncio.gather(metrics, return_exceptions=True)
            sampler.close()

    async def _look(self, sampler: UseSampler) -> None:
        await sampler.look()
        self._series = sampler.series()
