"""Prompts are counted beside the event loop within bounds; what is beyond them is estimated."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from mileage.core.events import Cancelled
from mileage.core.request import Request
from mileage.core.timeline import RequestTimeline
from mileage.gateway import counting_pool
from mileage.gateway.app import App
from mileage.gateway.config import GatewayConfig
from mileage.gateway.counting_metrics import CountingMetrics
from mileage.gateway.counting_pool import CountingPool
from mileage.gateway.driver import Driver
from mileage.gateway.exchange import Exchange
from mileage.gateway.metrics import GatewayMetrics
from mileage.gateway.request_ids import RequestIds
from mileage.gateway.tokenizer_config import TokenizerConfig
from mileage.wire.message import HttpRequest
from mileage.wire.server import ServerConnection
from tests.support.tokenizer_files import words_tokenizer

MODEL = "m"


class Gate:
    """A tokenizer that works only while it is open, and fails for the text `bad`."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.begun = threading.Event()
        self.asked: list[str] = []

    def encode_batch_fast(
        self, input: Sequence[str], *, add_special_tokens: bool = True
    ) -> Sequence[Any]:
        self.asked += input
        self.begun.set()
        assert self.open.wait(30)
        if "bad" in input:
            raise ValueError("the text of a prompt")
        if "panic" in input:
            raise BaseException("of a library in another language")
        return [text.split() for text in input]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(counting_pool, "load_tokenizer", lambda key, place: made)
    yield made
    made.open.set()


def body(text: str) -> bytes:
    return json.dumps({"prompt": text}).encode()


class Counts:
    """A pool, and what it has told."""

    def __init__(self, **settings: Any) -> None:
        self.metrics = CountingMetrics()
        config = TokenizerConfig(models={MODEL: "x"}, **{"bytes_min": 0, **settings})
        self.pool = CountingPool(config, self.metrics)
        self.told: list[int | None] = []

    def ask(self, text: str) -> None:
        self.pool.count(MODEL, "completions", body(text), self.told.append)

    def how(self) -> dict[str, float]:
        return {labels[0]: value for labels, value in self.metrics.prompts.values.items()}


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def run(check: Callable[[Counts], Awaitable[None]], **settings: Any) -> Counts:
    """The check, with a pool of its own."""

    async def main() -> Counts:
        counts = Counts(**settings)
        try:
            async with asyncio.timeout(60):
                await check(counts)
        finally:
            counts.pool.close()
        return counts

    return asyncio.run(main())


def test_counts_come_to_the_event_loop(gate: Gate) -> None:
    loops: list[int] = []

    async def check(counts: Counts) -> None:
        def then(count: int | None) -> None:
            counts.told.append(count)
            loops.append(threading.get_ident())

        counts.pool.count(MODEL, "completions", body("a b c"), then)
        counts.ask("a b")
        await until(lambda: len(counts.told) == 2)

    counts = run(check, wait_max_s=30)
    assert counts.told == [3, 2]
    assert loops == [threading.get_ident()]
    assert counts.how() == {"counted": 2}
    assert counts.metrics.seconds.values[()] > 0


def test_who_waits_too_long_goes_on_with_the_estimate_and_the_late_count_is_dropped(
    gate: Gate,
) -> None:
    async def check(counts: Counts) -> None:
        gate.open.clear()
        counts.ask("a b c")
        counts.ask("is not even begun")
        await until(lambda: len(counts.told) == 2)
        gate.open.set()
        counts.ask("a")
        await until(lambda: counts.pool._waiting == 0)

    counts = run(check, wait_max_s=0.2)
    assert counts.told[:2] == [None, None]
    assert len(counts.told) == 3
    assert counts.how()["late"] >= 2


def test_who_has_left_is_neither_tokenised_nor_in_the_way(gate: Gate) -> None:
    async def check(counts: Counts) -> None:
        gate.open.clear()
        counts.ask("a b")
        await until(gate.begun.is_set)
        left: list[int | None] = []
        cancel = counts.pool.count(MODEL, "completions", body("c d e"), left.append)
        assert cancel is not None
        assert counts.pool.count(MODEL, "completions", body("f"), counts.told.append) is None
        cancel()
        cancel()
        counts.ask("g h i j")  # there is room again
        gate.open.set()
        await until(lambda: len(counts.told) == 3)
        assert counts.pool._waiting == 0
        assert left == []

    counts = run(check, waiting_max=2, wait_max_s=30)
    assert counts.told == [None, 2, 4]
    assert gate.asked == ["a b", "g h i j"]
    assert counts.how() == {"busy": 1, "left": 1, "counted": 2}


def test_a_count_that_runs_while_its_client_leaves_keeps_its_place_until_it_ends(
    gate: Gate,
) -> None:
    async def check(counts: Counts) -> None:
        gate.open.clear()
        cancel = counts.pool.count(MODEL, "completions", body("a b"), counts.told.append)
        assert cancel is not None
        await until(gate.begun.is_set)
        cancel()
        assert counts.pool._waiting == 1
        gate.open.set()
        await until(lambda: counts.pool._waiting == 0)

    counts = run(check, wait_max_s=30)
    assert counts.told == []
    assert counts.how() == {"left": 1}


def test_a_pool_that_is_full_estimates_at_once(gate: Gate) -> None:
    async def check(counts: Counts) -> None:
        gate.open.clear()
        for _ in range(3):
            counts.ask("a b")
        assert counts.told == [None]
        gate.open.set()
        await until(lambda: len(counts.told) == 3)

    counts = run(check, waiting_max=2, wait_max_s=30)
    assert counts.told == [None, 2, 2]
    assert counts.how() == {"busy": 1, "counted": 2}


def test_a_tokenizer_that_fails_is_told_of_without_the_prompt(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(counts: Counts) -> None:
        counts.ask("bad")
        counts.ask("bad")
        counts.ask("a")
        await until(lambda: len(counts.told) == 3)

    counts = run(check, wait_max_s=30)
    assert counts.told == [None, None, 1]
    assert counts.how() == {"failed": 2, "counted": 1}
    assert caplog.messages == ["a prompt could not be counted: ValueError"]


def test_a_tokenizer_that_panics_keeps_no_place(gate: Gate) -> None:
    async def check(counts: Counts) -> None:
        for text in ("panic", "panic", "panic", "a"):
            asked = len(counts.told)
            counts.ask(text)
            await until(lambda asked=asked: len(counts.told) > asked)  # type: ignore[misc]

    counts = run(check, wait_max_s=30, waiting_max=1)
    assert counts.told == [None, None, None, 1]


def test_what_is_not_worth_it_is_not_asked(gate: Gate) -> None:
    async def check(counts: Counts) -> None:
        takes = counts.pool.takes
        assert takes(MODEL, 100, b"x" * 120)
        assert not takes(MODEL, 99, b"x" * 120)
        assert not takes(MODEL, 100, b"x" * 1001)
        assert not takes("another", 100, b"x" * 120)

    counts = run(check, bytes_min=100, bytes_max=1000)
    assert counts.how() == {"short": 1, "long": 1}


class Arrivals:
    """In a driver's place: keeps what is taken on."""

    arm_by_prefix = False

    def __init__(self) -> None:
        self.adapters: dict[str, Any] = {}
        self.metrics = GatewayMetrics()
        self.expected: list[Exchange] = []
        self.requests: list[Request] = []
        self.finished: list[RequestTimeline] = []

    def expect(self, exchange: Exchange) -> None:
        self.expected.append(exchange)

    def arrived(self, exchange: Exchange, now_s: float | None = None) -> None:
        assert exchange.call.request is exchange.request
        self.requests.append(exchange.request)

    def finish(self, timeline: RequestTimeline, *then: Any) -> None:
        self.finished.append(timeline)

    def handle(self, event: object, now_s: float) -> None:
        assert isinstance(event, Cancelled)


class Client:
    """In a connection's place."""

    owner: Any = None


def asked(app: App, text: str) -> None:
    http = HttpRequest()
    http.method, http.target = b"POST", b"/v1/completions"
    http.body = json.dumps({"model": MODEL, "prompt": text}).encode()
    http.headers = [(b"host", b"localhost")]
    app.handle(http, cast("ServerConnection", Client()))


def test_the_controller_is_told_the_count_and_nothing_of_who_has_left(tmp_path: Path) -> None:
    place = words_tokenizer(tmp_path / "tokenizer.json")
    config = GatewayConfig(
        tokenizer=TokenizerConfig(models={"*": str(place)}, bytes_min=100, wait_max_s=30)
    )

    async def main() -> list[Request]:
        arrivals = Arrivals()
        app = App(config, cast("Driver", arrivals), RequestIds(0))
        try:
            asked(app, "of few bytes")
            assert len(arrivals.requests) == 1
            for _ in range(2):
                asked(app, "extraordinarily long words " * 10)
            arrivals.expected[0].client_gone()
            await until(lambda: len(arrivals.requests) == 2)
            await until(lambda: app._counting is not None and app._counting._waiting == 0)
        finally:
            app.close()
        assert len(arrivals.expected) == 2
        assert [timeline.reason for timeline in arrivals.finished] == ["client_gone"]
        how = arrivals.metrics.counting.prompts.values
        assert how == {("short",): 1, ("left",): 1, ("counted",): 1}
        assert all(exchange.uncount is None for exchange in arrivals.expected)
        return arrivals.requests

    short, counted = asyncio.run(main())
    assert (short.prompt_counted, counted.prompt_counted) == (False, True)
    assert short.prompt_tokens_estimate == 4
    assert counted.prompt_tokens_estimate == 30
    assert counted.prompt_tokens_max is not None
    assert counted.prompt_tokens_max > 200, "a bound of tokens, whichever tokenizer it is"
