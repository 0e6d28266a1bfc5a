"""Prompts are counted beside the event loop within bounds; what is beyond them is estimated."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.gateway import counting_pool
from mileage.gateway.counting_metrics import CountingMetrics
from mileage.gateway.counting_pool import Cancel, CountingPool
from mileage.gateway.tokenizer_config import TokenizerConfig
from tests.support.gated_tokenizer import Gate, until

MODEL = "m"


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

    def ask(self, text: str, tenant: str = "") -> None:
        self.pool.count(MODEL, "completions", body(text), self.told.append, tenant=tenant)

    def how(self) -> dict[str, float]:
        return {labels[0]: value for labels, value in self.metrics.prompts.values.items()}


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


def test_a_tenants_many_prompts_are_in_no_other_ones_way(gate: Gate) -> None:
    async def check(counts: Counts) -> None:
        gate.open.clear()
        counts.ask("a 0", "a")
        await until(gate.begun.is_set)
        for number in range(1, 5):
            counts.ask(f"a {number}", "a")
        counts.ask("b 1", "b")
        counts.ask("b 2", "b")
        gate.open.set()
        await until(lambda: len(counts.told) == 7)

    run(check, wait_max_s=30)
    assert gate.asked == ["a 0", "b 1", "a 1", "b 2", "a 2", "a 3", "a 4"]


def test_where_all_places_are_taken_who_has_most_gives_one_up(gate: Gate) -> None:
    told: dict[str, int | None] = {}

    async def check(counts: Counts) -> None:
        def ask(text: str, tenant: str) -> Cancel | None:
            def then(count: int | None) -> None:
                told[text] = count

            return counts.pool.count(MODEL, "completions", body(text), then, tenant=tenant)

        gate.open.clear()
        ask("a 0", "a")
        await until(gate.begun.is_set)
        ask("a 1", "a")
        ask("a 2", "a")
        cancel = ask("a 3", "a")
        ask("b 0", "b")
        assert told == {}, "it is told in the next turn: this one is another request's"
        ask("b 1", "b")
        assert told == {"b 1": None}, "a has two that wait, and so would b"
        assert counts.pool._waiting == 4
        await until(lambda: "a 3" in told)
        assert cancel is not None
        cancel()  # of no use any more
        gate.open.set()
        await until(lambda: len(told) == 6)
        assert counts.pool._waiting == 0

    counts = run(check, waiting_max=4, wait_max_s=30)
    assert told == {"a 0": 2, "a 1": 2, "a 2": 2, "a 3": None, "b 0": 2, "b 1": None}
    assert counts.how() == {"busy": 2, "counted": 4}


def test_who_gives_its_place_up_and_leaves_is_told_nothing(gate: Gate) -> None:
    async def check(counts: Counts) -> None:
        gate.open.clear()
        counts.ask("a 0", "a")
        await until(gate.begun.is_set)
        counts.ask("a 1", "a")
        left: list[int | None] = []
        cancel = counts.pool.count(MODEL, "completions", body("a 2"), left.append, tenant="a")
        assert cancel is not None
        counts.ask("b", "b")
        cancel()
        gate.open.set()
        await until(lambda: len(counts.told) == 3)
        assert (left, counts.pool._waiting) == ([], 0)

    counts = run(check, waiting_max=3, wait_max_s=30)
    assert counts.how() == {"left": 1, "counted": 3}


def test_a_model_whose_own_tokenizer_cannot_be_read_is_estimated_and_not_counted_by_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def load(key: str, place: str) -> Gate:
        if place == "gone":
            raise ConfigError(key, place, "a tokenizer.json")
        return Gate()

    monkeypatch.setattr(counting_pool, "load_tokenizer", load)
    metrics = CountingMetrics()
    config = TokenizerConfig(models={"own": "gone", "*": "there"}, bytes_min=0)
    pool = CountingPool(config, metrics)
    assert not pool.takes("own", 10, b"x" * 10)
    assert pool.takes("another", 10, b"x" * 10)
    pool.close()
    assert metrics.prompts.values == {("failed",): 1}
    (said,) = caplog.messages
    assert said.startswith("prompts of own are estimated: ")


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


def test_without_a_thread_it_is_estimated_at_once(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def check(counts: Counts) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            counts.ask("a b c")
        assert (counts.told, counts.pool._waiting) == ([None], 0)
        counts.ask("a b")
        await until(lambda: len(counts.told) == 2)
        counts.pool.close()
        counts.ask("a b c d")
        assert (counts.told, counts.pool._waiting) == ([None, 2, None], 0)

    counts = run(check, wait_max_s=60)
    assert counts.how() == {"failed": 2, "counted": 1}


def test_what_is_not_worth_it_is_not_asked(gate: Gate) -> None:
    async def check(counts: Counts) -> None:
        takes = counts.pool.takes
        assert takes(MODEL, 100, b"x" * 120)
        assert not takes(MODEL, 99, b"x" * 120)
        assert not takes(MODEL, 100, b"x" * 1001)
        assert not takes("another", 100, b"x" * 120)

    counts = run(check, bytes_min=100, bytes_max=1000)
    assert counts.how() == {"short": 1, "long": 1}
