"""CacheWarmUp: sends an engine that came back empty the prefixes that it used most."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from mileage.core.errors import EngineError
from mileage.policy.prefix_directory.hot_prefixes import HotPrefixes, WarmUpPrompt
from mileage.policy.prefix_directory.warm_up_config import WarmUpConfig
from mileage.scrape.target import PollStatus, PollTarget
from mileage.wire.fetch import FetchResponse, fetch

__all__ = ["CacheWarmUp", "Ending", "Send", "WarmUpTotals"]

Ending: TypeAlias = Literal["all_sent", "heat_reached", "too_long", "down", "failed"]
LOOK_S: Final = 0.5
FAILURES_MAX: Final = 3
_TIMEOUT_S: Final = 120.0
_PATH: Final = "/v1/completions"
_log = logging.getLogger(__name__)


class Send(Protocol):
    """The shape of `fetch`, as far as it is used."""

    async def __call__(
        self,
        url: str,
        *,
        method: Literal["POST"],
        headers: list[tuple[str, str]],
        body: bytes,
        timeout_s: float,
    ) -> FetchResponse:
        """Raises EngineError."""
        ...


class WarmUpTotals(msgspec.Struct, kw_only=True):
    """What was done so far."""

    begun: int = 0
    prompts: int = 0
    tokens: int = 0
    """That were new to the engine, as planned."""
    failures: int = 0
    ending: Ending | None = None
    """How the last one ended."""
    heat_ratio: float | None = None
    """Of the heat before, what was in the cache when the last one ended."""


class CacheWarmUp:
    """Watches one replica: when it is up after it was down, or its events begin anew, it sends what
    HotPrefixes plans, one prompt at a time, each for a single token of answer.

    It looks at the replica's load before each chunk, in a view from after the chunk before, and
    waits while there are other requests. Prompts are in no message of the log. `restarts` tells how
    often the replica's events began anew.
    """

    def __init__(
        self,
        target: PollTarget,
        config: WarmUpConfig,
        memory: HotPrefixes,
        *,
        status: Callable[[], PollStatus],
        restarts: Callable[[], int],
        clock: Callable[[], float],
        send: Send = fetch,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._target, self._config, self._memory = target, config, memory
        self._status, self._restarts, self._clock = status, restarts, clock
        self._send, self._sleep = send, sleep
        self.totals = WarmUpTotals()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, in a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="cache-warm-up")

    async def stop(self) -> None:
        """End; a prompt on its way is given up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        was_up, restarts = False, self._restarts()
        lost = False
        while True:
            status = self._status()
            seen = self._restarts()
            if status.state == "down" and was_up:
                lost = True
                self._memory.cleared()
            lost, restarts = lost or seen != restarts, seen
            was_up = status.state == "up"
            if was_up and lost:
                lost = False
                try:
                    await self._warm_up()
                except Exception:
                    _log.exception("the cache of %s is not warmed up", self._target.name)
                restarts = self._restarts()
            await self._sleep(LOOK_S)

    async def _warm_up(self) -> None:
        began_s, totals = self._clock(), self.totals
        plan = self._memory.plan(began_s)
        if not plan:
            return
        totals.begun += 1
        before, failures_before = totals.tokens, totals.failures
        totals.ending = None
        idle_since_s = began_s
        for chunk in plan:
            totals.ending = await self._wait_idle(idle_since_s, began_s + self._config.max_s)
            if totals.ending is not None:
                break
            chunk_s = self._clock()
            for prompt in chunk.prompts:
                await self._prefill(prompt)
                if totals.failures - failures_before >= FAILURES_MAX:
                    totals.ending = "failed"
                    break
            if totals.ending is not None:
                break
            idle_since_s = self._clock()
            due_s = chunk_s + chunk.new_tokens / self._config.tokens_per_s
            await self._sleep(max(0.0, due_s - idle_since_s))
        totals.ending = totals.ending or "all_sent"
        totals.heat_ratio = self._memory.heat_ratio(self._clock())
        _log.warning(
            "warmed the cache of %s up: %d tokens in %.1f s, %.0f %% of its heat (%s)",
            self._target.name,
            totals.tokens - before,
            self._clock() - began_s,
            100 * (totals.heat_ratio or 0.0),
            totals.ending,
        )

    async def _wait_idle(self, since_s: float, until_s: float) -> Ending | None:
        """Wait until a view later than that shows no load; else why the warm-up ends."""
        while True:
            now_s = self._clock()
            if (self._memory.heat_ratio(now_s) or 0.0) >= self._config.heat_ratio:
                return "heat_reached"
            if now_s >= until_s:
                return "too_long"
            status = self._status()
            if status.state != "up":
                return "down"
            view = status.view
            if (
                view is not None
                and view.observed_s > since_s
                and view.running is not None
                and view.running <= self._config.running_max
                and not view.waiting
            ):
                return None
            await self._sleep(LOOK_S)

    async def _prefill(self, prompt: WarmUpPrompt) -> None:
        """Send one prompt, if it is still known and wanted; count whether the engine took it."""
        token_ids = self._memory.token_ids(prompt)
        if token_ids is None:
            return
        status = self._status()
        adapters = {adapter.model for adapter in status.adapters}
        models = [m for m in self._target.models or status.models if m not in adapters]
        if not models:
            self.totals.failures += 1
            return
        headers = [("content-type", "application/json")]
        if self._target.authorization is not None:
            headers.append(("authorization", self._target.authorization))
        body = {"model": models[0], "prompt": token_ids, "max_tokens": 1, "temperature": 0}
        try:
            answer = await self._send(
                self._target.url.rstrip("/") + _PATH,
                method="POST",
                headers=headers,
                body=msgspec.json.encode(body),
                timeout_s=_TIMEOUT_S,
            )
        except EngineError:
            answer = None
        if answer is None or answer.status != 200:
            self.totals.failures += 1
            return
        self.totals.prompts += 1
        self.totals.tokens += prompt.new_tokens
