"""CountingPool: threads that count the tokens of prompts beside the event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

from mileage.core.errors import ConfigError
from mileage.core.request import Endpoint
from mileage.gateway.counting_metrics import CountingMetrics
from mileage.gateway.counting_queue import CountingQueue
from mileage.gateway.prompt_counter import PromptCounter
from mileage.gateway.tokenizer_config import ANY_MODEL, TokenizerConfig
from mileage.gateway.tokenizer_file import load_tokenizer

__all__ = ["Cancel", "CountingPool", "Then"]

Then = Callable[[int | None], None]
"""Told the count; None: the prompt is to be estimated."""
Cancel = Callable[[], None]
"""Nobody waits for the count any more: `then` is not called."""
_NICE: Final = 5
_log = logging.getLogger(__name__)


class _Job:
    """One prompt whose count somebody waits for, until it is `over`."""

    __slots__ = (
        *("apart", "body", "counter", "endpoint", "over", "size_bytes", "tenant", "then", "timer"),
        "waits",
    )

    def __init__(
        self,
        counter: PromptCounter,
        endpoint: Endpoint,
        body: bytes,
        then: Then,
        tenant: str,
        apart: str | None,
    ) -> None:
        self.counter, self.endpoint, self.body, self.then = counter, endpoint, body, then
        self.tenant, self.apart = tenant, apart
        self.size_bytes = len(body)
        self.timer: asyncio.Handle | None = None
        self.waits = False
        self.over = False


class CountingPool:
    """Counts what it can in time; all else is estimated, and counted as such.

    Threads, not processes: the tokenizer works without the interpreter's lock, and needs no copy of
    the prompt (`make bench-tokenising` measures both). They give way to the event loop where they
    share its core. Tenants take turns (CountingQueue), and where all places are taken the one that
    has the most gives one up. Each `then` is called once, in the loop, unless it is cancelled.
    """

    def __init__(self, config: TokenizerConfig, metrics: CountingMetrics) -> None:
        """Reads the tokenizers, which takes a second or so. One that cannot be read any more since
        the configuration was checked is logged, and the prompts of its model are estimated: another
        model's tokenizer would be off as well, and its counts are taken for exact."""
        self._config, self._metrics = config, metrics
        self._waiting = 0
        """Those that are being counted among them."""
        self._queue: CountingQueue[_Job] = CountingQueue()
        self._tickets = 0
        """Calls of `_work` that have not begun: one at least for each job in the queue."""
        self._tickets_lock = threading.Lock()
        self._failures: set[str] = set()
        # Of its own threads there would be as many as cores, whatever is configured here.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._executor = ThreadPoolExecutor(
            config.threads, thread_name_prefix="mileage-count", initializer=_give_way
        )
        self._counters: dict[str, PromptCounter] = {}
        for model, place in config.models.items():
            try:
                tokenizer = load_tokenizer(f"tokenizer.models.{model}", place)
            except ConfigError as error:
                _log.error("prompts of %s are estimated: %s", model, error)
            else:
                self._counters[model] = PromptCounter(tokenizer)

    def takes(self, model: str, text_bytes: int, body: bytes) -> bool:
        """Whether a prompt of so much JSON, in this body, is to be counted; what is estimated
        instead is told by the metric."""
        if self._counter_of(model) is None:
            if model in self._config.models:
                self._metrics.prompts.add(("failed",))
            return False
        config = self._config
        if config.bytes_min <= text_bytes and len(body) <= config.bytes_max:
            return True
        how = "short" if text_bytes < config.bytes_min else "long"
        self._metrics.prompts.add((how,))
        return False

    def count(
        self,
        model: str,
        endpoint: Endpoint,
        body: bytes,
        then: Then,
        *,
        tenant: str = "",
        apart: str | None = None,
    ) -> Cancel | None:
        """Tell `then`, at once (None) or within `wait_max_s`, unless that is cancelled.

        `apart`: see PromptCounter.
        """
        counter = self._counter_of(model)
        loop = asyncio.get_running_loop()
        if counter is None or not self._has_place(tenant, loop):
            self._metrics.prompts.add(("busy" if counter else "failed",))
            then(None)
            return None
        self._waiting += 1
        job = _Job(counter, endpoint, body, then, tenant, apart)
        job.timer = loop.call_later(self._config.wait_max_s, self._estimated, job, "late")
        self._queue.put(job)
        if self._order(loop):
            return partial(self._left, job)
        self._estimated(job, "failed")
        return None

    def close(self) -> None:
        """Take no more; who waits is told within the bound, by what is done or by the clock."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _counter_of(self, model: str) -> PromptCounter | None:
        return self._counters.get(model if model in self._config.models else ANY_MODEL)

    def _has_place(self, tenant: str, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether one of the tenant may wait; another one may have to give its place up."""
        if self._waiting < self._config.waiting_max:
            return True
        job = self._queue.displaced(tenant)
        if job is None:
            return False
        self._waiting -= 1
        job.body = b""
        if job.timer is not None:
            job.timer.cancel()
        # Not at once: to take a request on must not begin with another's.
        job.timer = loop.call_soon(self._estimated, job, "busy")
        return True

    def _order(self, loop: asyncio.AbstractEventLoop) -> bool:
        """See to it that a thread will take one more; what has left the queue needs none. False: no
        thread can be had of the system, or the pool is closed."""
        with self._tickets_lock:
            if self._tickets >= len(self._queue):
                return True
            self._tickets += 1
        try:
            self._executor.submit(self._work, loop)
        except RuntimeError as error:
            with self._tickets_lock:
                self._tickets -= 1
            self._failed(error)
            return False
        return True

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread."""
        with self._tickets_lock:
            self._tickets -= 1
            job = self._queue.take()
        if job is None:
            return
        body, job.body = job.body, b""
        count: int | None = None
        began_s = time.perf_counter()
        try:
            if not job.over:  # else nobody waits for it any more
                count = job.counter.count(job.endpoint, body, job.apart)
        except BaseException as error:  # a panic of the library is no Exception
            self._failed(error)
        took_s = time.perf_counter() - began_s
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(self._end, job, count, took_s)

    def _failed(self, error: BaseException) -> None:
        """Said once for each kind, as a client could make many; its text may be of a prompt."""
        kind = type(error).__name__
        if kind not in self._failures:
            self._failures.add(kind)
            _log.warning("a prompt could not be counted: %s", kind)

    def _end(self, job: _Job, count: int | None, took_s: float) -> None:
        self._waiting -= 1
        self._metrics.seconds.add((), took_s)
        if job.over:
            return
        job.over = True
        if job.timer is not None:
            job.timer.cancel()
        self._metrics.prompts.add(("failed" if count is None else "counted",))
        job.then(count)

    def _left(self, job: _Job) -> None:
        """Its client has: what no thread has begun has no place, and no body, any more."""
        if job.over:
            return
        self._metrics.prompts.add(("left",))
        self._give_up(job)

    def _estimated(self, job: _Job, how: str) -> None:
        self._metrics.prompts.add((how,))
        self._give_up(job)
        job.then(None)

    def _give_up(self, job: _Job) -> None:
        job.over = True
        if job.timer is not None:
            job.timer.cancel()
        if self._queue.drop(job):
            self._waiting -= 1
            job.body = b""


def _give_way() -> None:
    with suppress(OSError):
        nice = os.getpriority(os.PRIO_PROCESS, 0) + _NICE
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
