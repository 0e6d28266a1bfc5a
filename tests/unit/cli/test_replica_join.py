"""Replicas at a reload: one engine that cannot be taken on, and one that may sleep no more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mileage.cli.config import Config
from mileage.cli.replicas import Replicas
from mileage.cli.sleepers import Sleepers
from mileage.cli.waking import Waking
from mileage.core.errors import EngineError
from mileage.core.events import Event, Loadable, ReplicaUp
from mileage.engines.config import EngineConfig
from mileage.engines.remote import RemoteEngine

WAIT_S = 60.0


class Poller:
    """Watches nothing, and remembers what it was asked to; breaks at the replica named `bad`."""

    def __init__(self) -> None:
        self.watched: list[str] = []
        self.added = asyncio.Event()

    def add(self, target: Any, busy: Any = None) -> None:
        if target.name == "bad":
            raise OSError("no more sockets")
        self.watched.append(target.name)
        self.added.set()

    async def remove(self, name: str) -> None:
        if name not in self.watched:
            raise KeyError(name)
        self.watched.remove(name)

    def status(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self.watched]

    def snapshot(self) -> tuple[Event, ...]:
        return ()


class Site:
    """Replicas whose engines are woken by the test."""

    def __init__(self, *engines: EngineConfig) -> None:
        config = Config(engines=engines)
        self.told: list[Event] = []
        self.poller = Poller()
        self.woken: list[tuple[str, int | None]] = []
        self.failures = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.made = Replicas(
            None,
            Path("/nowhere"),
            sleepers=lambda watcher: Sleepers(
                config,
                {},
                Path("/nowhere"),
                tell=self.told.append,
                watcher=watcher,
                live=lambda: (),
                changed=lambda: None,
            ),
            tell=self.told.append,
            observed=lambda view: None,
            forget=lambda name: None,
            changed=lambda: None,
            live=lambda: (),
        )
        self.made._poller = cast("Any", self.poller)
        self.made._waking = Waking(self._wake, retry_s=0.0)
        self.made.engines = self.made.plan(config).engines

    async def _wake(self, engine: RemoteEngine) -> None:
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise EngineError(engine.name, "does not answer")
        self.woken.append((engine.name, engine.sleep_level))

    async def reload(self, *engines: EngineConfig) -> None:
        move = self.made.plan(Config(engines=engines))
        await self.made.leave(move)
        await self.made.join(move)

    async def until_watched(self, name: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while name not in self.poller.watched:
                self.poller.added.clear()
                await self.poller.added.wait()


def engine(name: str, **fields: Any) -> EngineConfig:
    return EngineConfig(kind="vllm", name=name, url=f"http://{name}:8000", **fields)


def test_an_engine_that_cannot_be_taken_on_keeps_nobody_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        site = Site()
        await site.reload(engine("a"), engine("bad"), engine("b"))
        assert site.poller.watched == ["a", "b"]
        assert "engine bad could not be taken on" in caplog.text

    asyncio.run(story())


def test_one_that_may_sleep_no_more_is_woken_and_then_watched() -> None:
    async def story() -> None:
        site = Site(engine("a", sleep_level=2))
        site.failures = 2
        site.gate.clear()
        await site.reload(engine("a"))
        assert site.poller.watched == []
        (shown,) = site.made.health()
        assert (shown.up, shown.loading) == (False, True)
        assert "woken" in (shown.reason or "")
        site.gate.set()
        await site.until_watched("a")
        assert site.woken == [("a", 2)]
        site.made._heard(ReplicaUp("a", ("m",)))
        assert site.told[-2:] == [ReplicaUp("a", ("m",)), Loadable("a", ())]
        site.made._heard(ReplicaUp("a", ("m", "n")))
        assert site.told[-1] == ReplicaUp("a", ("m", "n")), "that is said once"

    asyncio.run(story())


def test_a_reload_while_it_is_woken_wakes_it_all_the_same() -> None:
    async def story() -> None:
        site = Site(engine("a", sleep_level=1))
        site.gate.clear()
        await site.reload(engine("a"))
        await site.reload(engine("a", health_timeout_s=9.0))
        assert site.poller.watched == []
        site.gate.set()
        await site.until_watched("a")
        assert site.woken == [("a", 1)]
        await site.reload(engine("a", health_timeout_s=8.0))
        assert (site.poller.watched, site.woken) == (["a"], [("a", 1)])

    asyncio.run(story())


def test_one_that_is_elsewhere_now_is_not_woken() -> None:
    async def story() -> None:
        site = Site(engine("a", sleep_level=1))
        other = EngineConfig(kind="vllm", name="a", url="http://other:8000")
        await site.reload(other)
        assert (site.poller.watched, site.woken) == (["a"], [])

    asyncio.run(story())
