"""An engine on loopback that answers each path by a script, and what a poller says about it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import msgspec

from mileage.core.events import Event
from mileage.scrape.poller import Poller
from mileage.scrape.target import PollStatus, PollTarget
from tests.support.loopback_server import Answer, LoopbackServer, Seen, http

__all__ = ["FakeEngine", "Heard", "model_list", "vllm_page", "watched"]

INTERVAL_S = 0.01


def model_list(*names: str) -> bytes:
    """An answer of /v1/models."""
    return http(200, msgspec.json.encode({"data": [{"id": name} for name in names]}))


def vllm_page(running: int) -> bytes:
    """An answer of vLLM's /metrics."""
    return http(200, f'vllm:num_requests_running{{engine="0"}} {running}\n'.encode())


class FakeEngine(LoopbackServer):
    """A healthy vLLM with model `m` and 3 requests running, until `paths` is changed."""

    def __init__(self) -> None:
        self.paths: dict[str, Answer] = {
            "/health": http(200),
            "/v1/models": model_list("m"),
            "/metrics": vllm_page(3),
            "/version": http(200, b'{"version": "0.32.0"}'),
        }
        super().__init__(lambda seen: self.paths.get(seen.target, http(404)))

    def count(self, path: str) -> int:
        """Requests seen for a path."""
        return sum(seen.target == path for seen in self.seen)

    def last(self, path: str) -> Seen:
        """The last request for a path."""
        return next(seen for seen in reversed(self.seen) if seen.target == path)

    async def until_asked(self, path: str, times: int = 1) -> None:
        """Wait for this many more requests for a path."""
        goal = self.count(path) + times
        await self.until(lambda: self.count(path) >= goal)

    def target(self, **fields: Any) -> PollTarget:
        """What a poller is told to watch here."""
        usual: dict[str, Any] = {
            "kind": "vllm",
            "name": "r",
            "url": self.url,
            "health_urls": (f"{self.url}/health", f"{self.url}/v1/models"),
            "models_url": f"{self.url}/v1/models",
            "metrics_urls": (f"{self.url}/metrics",),
            "version_urls": (f"{self.url}/version",),
            "health_interval_s": INTERVAL_S,
            "scrape_interval_s": INTERVAL_S,
        }
        return PollTarget(**{**usual, **fields})


class Heard:
    """The events that a poller emitted."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = asyncio.Event()

    def emit(self, event: Event) -> None:
        """Take an event."""
        self.events.append(event)
        self._changed.set()

    def of(self, *kinds: type[Event]) -> list[Any]:
        """The events of these types."""
        return [event for event in self.events if isinstance(event, kinds)]

    async def until(self, condition: Callable[[], bool], timeout_s: float = 60) -> None:
        """Wait for something that becomes true by an event."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_heard(self, kind: type[Event], times: int = 1) -> Any:
        """Wait until this many events of a type came, and give the last of them."""
        await self.until(lambda: len(self.of(kind)) >= times)
        return self.of(kind)[times - 1]


class Watched(msgspec.Struct):
    """A fake engine, the poller that watches it, and what it said."""

    engine: FakeEngine
    poller: Poller
    heard: Heard

    def status(self) -> PollStatus:
        """The one replica's status."""
        (status,) = self.poller.status()
        return status


def watched(
    story: Callable[[Watched], Awaitable[None]],
    prepare: Callable[[FakeEngine], dict[str, Any]] = lambda engine: {},
) -> None:
    """Run a story with a poller watching a fake engine; `prepare` may change both before."""

    async def run() -> None:
        heard = Heard()
        async with FakeEngine() as engine:
            target = engine.target(**prepare(engine))
            poller = Poller([target], emit=heard.emit, clock=time.monotonic, rng=Random(1))
            await poller.start()
            try:
                await story(Watched(engine, poller, heard))
            finally:
                await poller.stop()

    asyncio.run(run())
