"""The poller against engines on loopback: up and down, and the models they serve."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from mileage.core.events import Observed, ReplicaDown, ReplicaUp
from mileage.core.replica import Adapter
from tests.support.fake_engine import FakeEngine, Watched, model_list, watched
from tests.support.loopback_server import Answer, Hang, Reset, http


def test_a_healthy_engine_comes_up_with_its_models() -> None:
    async def story(w: Watched) -> None:
        assert await w.heard.until_heard(ReplicaUp) == ReplicaUp("r", ("m",))
        await w.engine.until_asked("/health", 3)
        assert len(w.heard.of(ReplicaUp, ReplicaDown)) == 1
        status = w.status()
        assert (status.state, status.models, status.health_error) == ("up", ("m",), None)
        assert status.checked_s is not None

    watched(story)


@pytest.mark.parametrize(
    ("path", "answer", "reason"),
    [
        pytest.param(
            "/health", http(500, b"engine\r\ndead"), "answered 500: engine  dead", id="500"
        ),
        pytest.param("/health", http(503), "answered 503", id="503 without a body"),
        pytest.param("/health", http(401), "answered 401 (is its API key right?)", id="401"),
        pytest.param("/health", http(302, b"", ["Location: /x"]), "answered 302", id="a redirect"),
        pytest.param("/health", Reset(), "connection broke", id="a reset"),
        pytest.param("/health", b"HTTP/1.1 200 X\r\nContent-Le", "in the middle", id="half"),
        pytest.param("/health", b"garbage", "not HTTP", id="garbage"),
        pytest.param("/v1/models", http(500), "answered 500", id="no list of models"),
        pytest.param("/v1/models", http(200, b"<html>"), "no usable model list", id="a bad list"),
    ],
)
def test_an_engine_that_never_was_well_is_down_with_the_reason(
    path: str, answer: Answer, reason: str
) -> None:
    def prepare(engine: FakeEngine) -> dict[str, Any]:
        engine.paths[path] = answer
        return {}

    async def story(w: Watched) -> None:
        down = await w.heard.until_heard(ReplicaDown)
        assert down.replica == "r"
        assert down.reason.startswith(f"{w.engine.url}{path}: ")
        assert reason in down.reason
        await w.engine.until_asked("/health", 3)
        assert len(w.heard.events) == 1  # said once, and not scraped
        status = w.status()
        assert (status.state, status.health_error) == ("down", down.reason)
        assert status.checks_failed >= 2

    watched(story, prepare)


def test_an_engine_that_is_not_there() -> None:
    async def story(w: Watched) -> None:
        down = await w.heard.until_heard(ReplicaDown)
        assert down.reason.endswith(": connection refused")

    watched(story, lambda engine: {"health_urls": ("http://127.0.0.1:9/health",)})


def test_it_goes_down_and_comes_up_again() -> None:
    async def story(w: Watched) -> None:
        await w.heard.until_heard(ReplicaUp)
        w.engine.paths["/health"] = http(503, b"dead")
        assert "answered 503: dead" in (await w.heard.until_heard(ReplicaDown)).reason
        assert w.status().models == ()
        w.engine.paths["/health"] = http(200)
        w.engine.paths["/v1/models"] = model_list("other")
        assert await w.heard.until_heard(ReplicaUp, 2) == ReplicaUp("r", ("other",))

    watched(story)


def test_one_failed_check_is_forgiven() -> None:
    async def story(w: Watched) -> None:
        await w.heard.until_heard(ReplicaUp)
        answers = [http(500), http(200)] * 3
        w.engine.answer = lambda seen: (
            (answers.pop(0) if answers else http(200))
            if seen.target == "/health"
            else w.engine.paths[seen.target]
        )
        await w.engine.until(lambda: not answers)
        await w.engine.until_asked("/health", 2)
        assert w.status().checks_failed == 3
        assert w.heard.of(ReplicaDown) == []

    watched(story)


def test_an_engine_that_is_too_busy_to_answer_is_given_time() -> None:
    async def story(w: Watched) -> None:
        await w.heard.until_heard(ReplicaUp)
        failed = w.status().checks_failed  # of a machine that was busy at the start
        w.engine.paths["/health"] = Hang()
        await w.engine.until_asked("/health", 4)
        assert w.status().state == "up"
        down = await w.heard.until_heard(ReplicaDown)
        assert "no answer within 0.2 s" in down.reason
        assert w.status().checks_failed - failed == 5

    watched(story, lambda engine: {"health_timeout_s": 0.2})


def test_the_limits_of_patience_can_be_set() -> None:
    async def story(w: Watched) -> None:
        await w.heard.until_heard(ReplicaUp)
        w.engine.paths["/health"] = http(500)
        await w.heard.until_heard(ReplicaDown)
        assert w.status().checks_failed == 1

    watched(story, lambda engine: {"failures_max": 1})


def test_a_change_of_models_is_said_and_a_change_of_their_order_is_not() -> None:
    async def story(w: Watched) -> None:
        await w.heard.until_heard(ReplicaUp)
        w.engine.paths["/v1/models"] = model_list("m", "lora-1")
        assert await w.heard.until_heard(ReplicaUp, 2) == ReplicaUp("r", ("m", "lora-1"))
        w.engine.paths["/v1/models"] = model_list("lora-1", "m")
        await w.engine.until_asked("/v1/models", 3)
        w.engine.paths["/v1/models"] = model_list()
        assert await w.heard.until_heard(ReplicaUp, 3) == ReplicaUp("r", ())
        assert len(w.heard.of(ReplicaUp, ReplicaDown)) == 3

    watched(story)


def test_adapters_are_said_with_the_models() -> None:
    base = {"id": "m", "parent": None}
    adapter = {"id": "sql", "parent": "m"}

    async def story(w: Watched) -> None:
        await w.heard.until_heard(ReplicaUp)
        w.engine.paths["/v1/models"] = http(200, msgspec.json.encode({"data": [base, adapter]}))
        up = await w.heard.until_heard(ReplicaUp, 2)
        assert up == ReplicaUp("r", ("m", "sql"), (Adapter("sql", "sql", "m"),))
        assert w.status().adapters == up.adapters
        w.engine.paths["/v1/models"] = model_list("m", "sql")
        assert await w.heard.until_heard(ReplicaUp, 3) == ReplicaUp("r", ("m", "sql"))

    watched(story)


def test_an_engine_loads_from_its_first_503_until_it_is_up() -> None:
    def prepare(engine: FakeEngine) -> dict[str, Any]:
        engine.paths["/health"] = http(503, b'{"error": {"message": "Loading model"}}')
        return {"health_timeout_s": 0.5}

    async def answered(w: Watched, answer: Answer) -> bool:
        w.engine.paths["/health"] = answer
        await w.engine.until_asked("/health", 3)
        return w.status().loading

    async def story(w: Watched) -> None:
        await w.heard.until_heard(ReplicaDown)
        assert w.status().loading
        assert await answered(w, Hang())  # busy, perhaps, with just that
        assert not await answered(w, http(200))
        assert not await answered(w, http(503))  # it has served: it is ill
        assert not await answered(w, Reset())
        assert await answered(w, http(503))  # it was started again
        assert not await answered(w, http(500))

    watched(story, prepare)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(http(500), id="an error"),
        pytest.param(http(200, b'{"data": [{"id": 5}]}'), id="a bad list"),
        pytest.param(Reset(), id="a reset"),
        pytest.param(http(200, b" " * (9 * 1024 * 1024)), id="a huge body"),
    ],
)
def test_a_healthy_engine_keeps_its_models_while_their_list_fails(answer: Answer) -> None:
    async def story(w: Watched) -> None:
        await w.heard.until_heard(ReplicaUp)
        w.engine.paths["/v1/models"] = answer
        await w.engine.until_asked("/v1/models", 4)
        status = w.status()
        assert (status.state, status.models, status.checks_failed) == ("up", ("m",), 0)
        assert status.health_error is not None
        assert status.health_error.startswith(f"{w.engine.url}/v1/models: ")
        w.engine.paths["/v1/models"] = model_list("m", "n")
        await w.heard.until_heard(ReplicaUp, 2)
        assert w.status().health_error is None

    watched(story)


def test_configured_models_are_not_asked_for() -> None:
    async def story(w: Watched) -> None:
        assert await w.heard.until_heard(ReplicaUp) == ReplicaUp("r", ("a", "b"))
        await w.engine.until_asked("/health", 3)
        assert w.engine.count("/v1/models") == 0

    watched(story, lambda engine: {"models": ("a", "b")})


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_health_page_that_is_not_there_is_replaced_by_the_model_list(status: int) -> None:
    def prepare(engine: FakeEngine) -> dict[str, Any]:
        engine.paths["/health"] = http(status)
        return {}

    async def story(w: Watched) -> None:
        assert await w.heard.until_heard(ReplicaUp) == ReplicaUp("r", ("m",))
        await w.engine.until_asked("/v1/models", 4)
        assert w.engine.count("/health") == 1  # remembered
        w.engine.paths["/v1/models"] = http(500)
        await w.heard.until_heard(ReplicaDown)  # it is the health page now

    watched(story, prepare)


def test_a_server_without_health_page_and_list_is_up_if_its_models_are_configured() -> None:
    def prepare(engine: FakeEngine) -> dict[str, Any]:
        engine.paths.clear()
        return {"models": ("a",)}

    async def story(w: Watched) -> None:
        assert await w.heard.until_heard(ReplicaUp) == ReplicaUp("r", ("a",))

    watched(story, prepare)


def test_a_check_at_once() -> None:
    async def story(w: Watched) -> None:
        await w.heard.until_heard(ReplicaDown)
        w.engine.paths["/health"] = http(200)
        w.poller.check_now("r")
        await w.heard.until_heard(ReplicaUp)
        with pytest.raises(KeyError):
            w.poller.check_now("nobody")

    def prepare(engine: FakeEngine) -> dict[str, Any]:
        engine.paths["/health"] = http(500)
        return {"health_interval_s": 1000.0, "failures_max": 1}

    watched(story, prepare)


def test_the_version_is_learned_anew_each_time_it_comes_up() -> None:
    async def story(w: Watched) -> None:
        await w.heard.until_heard(Observed)
        assert w.status().version == "0.32.0"
        w.engine.paths["/health"] = http(503)
        await w.heard.until_heard(ReplicaDown)
        w.engine.paths |= {"/health": http(200), "/version": http(200, b'{"version": "0.33"}')}
        before = len(w.heard.of(Observed))
        await w.heard.until_heard(Observed, before + 1)
        assert w.status().version == "0.33"
        assert w.engine.count("/version") == 2

    watched(story)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(http(404), id="no such page"),
        pytest.param(http(200, b'{"version": 5}'), id="a number"),
        pytest.param(http(200, b'{"other": "x"}'), id="no such field"),
        pytest.param(http(200, b'{"version": "' + b"x" * 101 + b'"}'), id="too long"),
        pytest.param(http(200, b'{"version": "\\u001b[2J"}'), id="a terminal escape"),
        pytest.param(http(200, b"0.32"), id="no JSON object"),
        pytest.param(Reset(), id="a reset"),
    ],
)
def test_a_version_that_is_not_told_is_none(answer: Answer) -> None:
    def prepare(engine: FakeEngine) -> dict[str, Any]:
        engine.paths["/version"] = answer
        return {}

    async def story(w: Watched) -> None:
        await w.heard.until_heard(Observed)
        assert w.status().version is None

    watched(story, prepare)


def watching() -> int:
    """Tasks that watch a replica."""
    return sum("Watch" in repr(task.get_coro()) for task in asyncio.all_tasks())


def test_nothing_runs_after_stop() -> None:
    async def story(w: Watched) -> None:
        await w.heard.until_heard(Observed)
        assert watching() == 2
        await w.poller.stop()
        assert watching() == 0
        said = len(w.heard.events)
        await w.engine.until(lambda: not w.engine.transports)
        assert len(w.heard.events) == said

    watched(story)
