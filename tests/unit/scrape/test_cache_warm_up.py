"""A replica that came back empty is sent its hottest prefixes, while it has nothing else to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgspec
import pytest

from mileage.core.replica import Adapter, ReplicaView
from mileage.policy.prefix_directory.hot_prefixes import HotPrefixes
from mileage.policy.prefix_directory.warm_up_config import WarmUpConfig
from mileage.scrape.cache_warm_up import CacheWarmUp
from mileage.scrape.health import HealthState
from mileage.scrape.target import PollStatus, PollTarget
from mileage.wire.fetch import FetchError, FetchResponse

SIZE = 4


class Site:
    """A replica in virtual time, whose cache knows what it was sent; views come at each look."""

    def __init__(self, **settings: Any) -> None:
        self.now_s = 1000.0
        self.state: HealthState = "up"
        self.running: int | None = 0
        self.restarts = 0
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[tuple[str, str]] = []
        self.paused = 0
        self.fails = 0
        """So many prompts are refused."""
        self.steps: list[Callable[[], None]] = []
        """One for each wait."""
        config = WarmUpConfig(enabled=True, **{"chunk_tokens": 8, **settings})
        self.memory = HotPrefixes(config)
        for prefix in range(4):
            for question in range(2 + prefix):
                block = 10 * prefix + 1
                self.now_s += 10.0
                if not question:
                    self.memory.stored(0, [block], [[prefix] * SIZE], self.now_s)
                asked = 1000 + 10 * prefix + question
                self.memory.stored(block, [asked], [[asked] * SIZE], self.now_s)
        target = PollTarget(
            kind="vllm",
            name="r",
            url="http://engine:8000",
            health_urls=(),
            models_url="",
            authorization="Bearer secret",
        )
        self.warm_up = CacheWarmUp(
            target,
            config,
            self.memory,
            status=self.status,
            restarts=lambda: self.restarts,
            clock=lambda: self.now_s,
            send=self.send,
            sleep=self.sleep,
        )

    def status(self) -> PollStatus:
        view = ReplicaView(replica="r", observed_s=self.now_s, running=self.running, waiting=0)
        known: dict[str, Any] = dict.fromkeys(
            field.name for field in msgspec.structs.fields(PollStatus) if field.required
        )
        models, adapters = ("lora", "base"), (Adapter("lora", "lora", "base"),)
        return PollStatus(
            **{**known, "state": self.state, "view": view, "models": models, "adapters": adapters}
        )

    async def send(
        self,
        url: str,
        *,
        method: Literal["POST"],
        headers: list[tuple[str, str]],
        body: bytes,
        timeout_s: float,
    ) -> FetchResponse:
        assert url == "http://engine:8000/v1/completions"
        self.headers = headers
        if self.fails:
            self.fails -= 1
            raise FetchError(url, "broken", "it died")
        found = json.loads(body)
        self.bodies.append(found)
        tokens = found["prompt"]
        self.memory.stored(0, [10 * tokens[0] + 1], [tokens[:SIZE]], self.now_s)
        self.now_s += 0.1
        return FetchResponse(200, (), b"{}")

    async def sleep(self, wait_s: float) -> None:
        self.now_s += wait_s
        self.paused += 1
        if self.steps:
            self.steps.pop(0)()
        await asyncio.sleep(0)

    def down(self) -> None:
        self.state = "down"

    def up(self) -> None:
        self.state = "up"

    def load(self, running: int | None) -> None:
        self.running = running

    def nothing(self) -> None:
        """It is as it was; all is well until now."""
        assert not self.bodies

    def run(self, *steps: Callable[[], None]) -> None:
        """Until a warm-up has ended, which begins with the steps; it is up for a while before."""
        self.steps = [self.nothing, self.nothing, *steps]

        async def main() -> None:
            self.warm_up.start()
            try:
                async with asyncio.timeout(60):
                    while self.warm_up.totals.ending is None:  # noqa: ASYNC110 -- virtual time
                        await asyncio.sleep(0)
            finally:
                await self.warm_up.stop()

        asyncio.run(main())


def test_the_hottest_come_first_as_token_ids_for_one_token_of_answer() -> None:
    site = Site(heat_ratio=1.0)
    site.run(site.down, site.up)
    assert [body["prompt"] for body in site.bodies] == [[n] * SIZE for n in (3, 2, 1, 0)]
    first = site.bodies[0]
    assert (first["model"], first["max_tokens"]) == ("base", 1)
    assert ("authorization", "Bearer secret") in site.headers
    totals = site.warm_up.totals
    assert (totals.begun, totals.prompts, totals.tokens) == (1, 4, 16)
    assert totals.ending == "all_sent"
    assert totals.heat_ratio == pytest.approx(1.0)


def test_it_ends_when_enough_of_the_heat_is_there() -> None:
    site = Site(heat_ratio=0.5, chunk_tokens=1)
    site.run(site.down, site.up)
    assert site.warm_up.totals.ending == "heat_reached"
    assert len(site.bodies) == 2


def test_it_pauses_while_there_is_load() -> None:
    site = Site(running_max=1, heat_ratio=1.0)
    busy = [site.nothing] * 20
    site.run(site.down, partial(site.load, 2), site.up, *busy, partial(site.load, 1))
    assert len(site.bodies) == 4


def test_a_load_that_is_not_known_is_one_and_the_time_is_bounded() -> None:
    site = Site(max_s=60.0)
    site.running = None
    site.run(site.down, site.up)
    assert site.warm_up.totals.ending == "too_long"
    assert site.bodies == []


def test_events_that_begin_anew_are_a_restart_too() -> None:
    site = Site()

    def anew() -> None:
        site.memory.cleared()
        site.restarts += 1

    site.run(anew)
    assert site.bodies


def test_the_rate_is_bounded() -> None:
    site = Site(tokens_per_s=2.0, heat_ratio=1.0)
    began_s = site.now_s
    site.run(site.down, site.up)
    assert site.now_s - began_s >= 16 / 2.0


def test_an_engine_that_refuses_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    site.fails = 100
    site.run(site.down, site.up)
    assert (site.warm_up.totals.ending, site.warm_up.totals.failures) == ("failed", 3)
    (message,) = caplog.messages
    assert message.startswith("warmed the cache of r up: 0 tokens")


def test_failures_of_an_earlier_warm_up_end_no_other() -> None:
    site = Site(heat_ratio=1.0)
    site.fails = 2
    site.run(site.down, site.up)
    assert (site.warm_up.totals.ending, len(site.bodies)) == ("all_sent", 2)
    site.bodies.clear()
    site.warm_up.totals.ending = None
    site.fails = 1
    site.run(site.down, site.up)
    totals = site.warm_up.totals
    assert (totals.ending, totals.failures, len(site.bodies)) == ("all_sent", 3, 3)
