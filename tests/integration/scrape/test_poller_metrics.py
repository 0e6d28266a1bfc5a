"""The poller against engines on loopback: their metrics, and metrics that fail."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.core.events import Event, Observed, ReplicaDown, ReplicaUp
from mileage.scrape.poller import Poller
from mileage.wire.fetch import FetchResponse
from tests.support.fake_engine import FakeEngine, Heard, Watched, model_list, vllm_page, watched
from tests.support.loopback_server import Answer, Hang, Reset, http


def test_figures_are_observed_and_dated_before_they_were_asked_for() -> None:
    async def story(w: Watched) -> None:
        start_s = time.monotonic()
        view = (await w.heard.until_heard(Observed, 2)).view
        assert (view.replica, view.running) == ("r", 3)
        assert start_s - 1 <= view.observed_s <= time.monotonic()
        w.engine.paths["/metrics"] = vllm_page(8)
        await w.heard.until(lambda: w.heard.of(Observed)[-1].view.running == 8)
        status = w.status()
        assert status.view == w.heard.of(Observed)[-1].view
        assert status.scrape_age_s is not None
        assert 0 <= status.scrape_age_s < 10
        assert (status.metrics_kind, status.scrape_error) == ("vllm", None)
        assert status.scrapes >= 3

    watched(story)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(http(500, b"boom"), "answered 500: boom", id="an error"),
        pytest.param(Reset(), "connection broke", id="a reset"),
        pytest.param(b"", "closed without an answer", id="closed"),
        pytest.param(vllm_page(3)[:-9], "in the middle of an answer", id="half an answer"),
        pytest.param(http(200, b"x" * (9 * 1024 * 1024)), "answer larger than", id="a huge body"),
        pytest.param(http(200, b"<p>\n" * 20_000), "too many series or bad lines", id="garbage"),
        pytest.param(Hang(), "no answer within 0.1 s", id="no answer"),
    ],
)
def test_failing_metrics_are_counted_and_take_no_replica_down(answer: Answer, reason: str) -> None:
    async def story(w: Watched) -> None:
        await w.heard.until_heard(Observed)
        w.engine.paths["/metrics"] = answer
        await w.engine.until_asked("/metrics", 3)
        status = w.status()
        assert (status.state, w.heard.of(ReplicaDown)) == ("up", [])
        assert status.scrapes_failed >= 1
        assert status.scrape_error is not None
        assert status.scrape_error.startswith(f"{w.engine.url}/metrics: ")
        assert reason in status.scrape_error
        assert status.view is not None  # the last one, which grows old
        before = len(w.heard.of(Observed))
        w.engine.paths["/metrics"] = vllm_page(1)
        await w.heard.until_heard(Observed, before + 1)
        assert w.status().scrape_error is None

    # A slow machine is not to be taken for an engine that does not answer.
    timeout_s = 0.1 if isinstance(answer, Hang) else 60.0
    watched(story, lambda engine: {"scrape_timeout_s": timeout_s})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(http(404), "answered 404", id="no such page"),
        pytest.param(http(501), "answered 501", id="switched off"),
        pytest.param(http(403), "answered 403", id="forbidden"),
        pytest.param(http(200, b"up 1\n"), "no known series of kind vllm", id="others' series"),
        pytest.param(
            http(200, b"sglang:num_running_reqs 1\n"), "it looks like sglang", id="another kind"
        ),
        pytest.param(http(200, b"<html>"), "no known series", id="a web page"),
    ],
)
def test_an_engine_without_metrics_is_asked_less_and_less(answer: Answer, reason: str) -> None:
    def prepare(engine: FakeEngine) -> dict[str, Any]:
        engine.paths["/metrics"] = answer
        return {}

    async def story(w: Watched) -> None:
        await w.engine.until_asked("/health", 60)
        asked = w.engine.count("/metrics")
        assert 2 <= asked <= 12  # doubling from 0.02 s: the 13th after 40 s
        status = w.status()
        assert (status.state, status.view, w.heard.of(Observed)) == ("up", None, [])
        assert status.scrapes_failed >= asked - 1
        assert status.scrape_error is not None
        assert reason in status.scrape_error
        w.engine.paths |= {"/health": http(500), "/metrics": vllm_page(1)}
        await w.heard.until_heard(ReplicaDown)
        w.engine.paths["/health"] = http(200)
        await w.heard.until_heard(Observed)  # a restart may have brought them

    watched(story, prepare)


def test_the_second_metrics_page_where_the_first_is_not_there() -> None:
    def prepare(engine: FakeEngine) -> dict[str, Any]:
        engine.paths["/metrics"] = http(200, b'[{"numActiveRequests": 7}]')
        urls = (f"{engine.url}/prometheus/metrics", f"{engine.url}/metrics")
        return {"kind": "trtllm", "metrics_urls": urls}

    async def story(w: Watched) -> None:
        assert (await w.heard.until_heard(Observed)).view.running == 7
        await w.engine.until_asked("/metrics", 3)
        assert w.engine.count("/prometheus/metrics") == 1  # remembered
        w.engine.paths["/metrics"] = http(200, b"[]")
        await w.engine.until_asked("/metrics", 2)
        before, asked = len(w.heard.of(Observed)), w.engine.count("/metrics")
        await w.engine.until_asked("/metrics", 3)  # idle, not without metrics: asked as before
        assert len(w.heard.of(Observed)) == before
        assert (w.status().scrape_error, w.engine.count("/metrics")) == (None, asked + 3)

    watched(story, prepare)


def test_the_kind_of_an_unknown_server_is_seen_from_its_metrics() -> None:
    async def story(w: Watched) -> None:
        assert (await w.heard.until_heard(Observed)).view.running == 3
        assert (w.status().kind, w.status().metrics_kind) == ("openai", "vllm")

    watched(story, lambda engine: {"kind": "openai"})


def test_without_a_metrics_page_none_is_asked_for() -> None:
    async def story(w: Watched) -> None:
        await w.engine.until_asked("/health", 5)
        assert w.engine.count("/metrics") == 0
        assert (w.status().scrapes, w.status().scrape_error) == (0, None)

    watched(story, lambda engine: {"metrics_urls": ()})


def test_a_replica_that_is_down_is_not_scraped() -> None:
    async def story(w: Watched) -> None:
        await w.heard.until_heard(Observed)
        w.engine.paths["/health"] = http(500)
        await w.heard.until_heard(ReplicaDown)
        await w.engine.until_asked("/health")
        asked = w.engine.count("/metrics")
        await w.engine.until_asked("/health", 10)
        assert w.engine.count("/metrics") <= asked + 1

    watched(story)


def test_bad_lines_are_counted() -> None:
    def prepare(engine: FakeEngine) -> dict[str, Any]:
        body = b"vllm:num_requests_running 3\nvllm:num_requests_waiting x\n"
        engine.paths["/metrics"] = http(200, body)
        return {}

    async def story(w: Watched) -> None:
        view = (await w.heard.until_heard(Observed, 2)).view
        assert (view.running, view.waiting) == (3, None)
        assert w.status().lines_bad >= 2

    watched(story, prepare)


def test_the_key_goes_to_the_engine_and_to_nobody_else() -> None:
    async def story(w: Watched) -> None:
        async with FakeEngine() as other:
            elsewhere = w.engine.target(
                name="s",
                authorization="Bearer k",
                metrics_urls=(f"{other.url}/metrics", f"{w.engine.url}/metrics"),
            )
            other.paths["/metrics"] = http(404)
            w.poller.add(elsewhere)
            await w.heard.until(lambda: any(e.view.replica == "s" for e in w.heard.of(Observed)))
            assert "authorization" not in other.last("/metrics").headers
            for path in ("/health", "/v1/models", "/metrics", "/version"):
                keys = {s.headers.get("authorization") for s in w.engine.seen if s.target == path}
                assert keys == {None, "Bearer k"}  # the replicas r and s

    watched(story)


def test_replicas_may_be_added_while_it_runs() -> None:
    async def story(w: Watched) -> None:
        await w.heard.until_heard(ReplicaUp)
        with pytest.raises(ConfigError, match="'r'"):
            w.poller.add(w.engine.target())
        w.poller.add(w.engine.target(name="s"))
        assert (await w.heard.until_heard(ReplicaUp, 2)).replica == "s"
        assert [status.name for status in w.poller.status()] == ["r", "s"]
        w.engine.paths["/health"] = http(500)
        await w.heard.until_heard(ReplicaDown, 2)
        assert {event.replica for event in w.heard.of(ReplicaDown)} == {"r", "s"}

    watched(story)


def test_a_newcomer_is_brought_up_to_date() -> None:
    async def story(w: Watched) -> None:
        assert w.poller.snapshot() == ()
        view = (await w.heard.until_heard(Observed)).view
        up, observed = w.poller.snapshot()
        assert up == ReplicaUp("r", ("m",))
        assert isinstance(observed, Observed)
        assert observed.view.observed_s >= view.observed_s
        w.engine.paths["/health"] = http(500, b"gone")
        down = await w.heard.until_heard(ReplicaDown)
        assert w.poller.snapshot()[0] == down

    watched(story)


def test_an_event_that_could_not_be_delivered_is_said_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(w: Watched) -> None:
        await w.heard.until_heard(ReplicaUp)
        emit = w.heard.emit

        def refuse(event: Event) -> None:
            raise RuntimeError("no room")

        w.poller._watches["r"]._emit = refuse
        w.engine.paths["/v1/models"] = model_list("n")
        await w.engine.until_asked("/v1/models", 4)
        assert len(w.heard.of(ReplicaUp)) == 1
        w.poller._watches["r"]._emit = emit
        assert await w.heard.until_heard(ReplicaUp, 2) == ReplicaUp("r", ("n",))

    watched(story)
    assert "no room" in caplog.text


def test_a_bug_in_one_step_does_not_end_the_watching(caplog: pytest.LogCaptureFixture) -> None:
    async def story(w: Watched) -> None:
        await w.heard.until_heard(Observed)
        inquiry = w.poller._watches["r"]._inquiry
        real = inquiry._fetch
        failures = 0

        async def broken(url: str, **options: Any) -> FetchResponse:
            nonlocal failures
            failures += 1
            if failures > 6:
                inquiry._fetch = real
            raise ZeroDivisionError("a bug")

        inquiry._fetch = broken
        await w.engine.until_asked("/health", 2)
        before = len(w.heard.of(Observed))
        await w.heard.until_heard(Observed, before + 1)
        assert (failures, w.status().state) == (7, "up")

    watched(story)
    assert "a bug" in caplog.text


def test_it_begins_with_no_replica() -> None:
    poller = Poller(emit=Heard().emit, clock=time.monotonic, rng=Random(1))
    assert (poller.status(), poller.snapshot()) == ((), ())
