"""The benchmarks' load clients against their own engine: they count, check and time rightly."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.support.closed_loop import run_closed_loop
from benchmarks.support.engine_upstream import EngineUpstream
from benchmarks.support.judges import ExactBody, StampedEvents
from benchmarks.support.open_loop import run_open_loop
from benchmarks.support.payloads import (
    CHAT_MODEL,
    STREAM_MODEL,
    chat_answer,
    chat_request,
    http_request,
    usage_event,
)
from benchmarks.support.probe import Probe, ask
from benchmarks.support.processes import free_port

pytestmark = pytest.mark.quiet


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineUpstream]:
    directory: Path = tmp_path_factory.mktemp("engine")
    with EngineUpstream(directory, core=0) as engine:
        yield engine


def test_closed_loop_checks_every_event_of_paced_streams(engine: EngineUpstream) -> None:
    seen: list[int] = []
    body = chat_request(STREAM_MODEL, stream=True, user="events=10 interval_ms=5")
    result = run_closed_loop(
        engine.port,
        http_request(body),
        lambda: StampedEvents(10, lambda number, _delay, _now: seen.append(number)),
        connections=8,
        window_s=0.2,
        ramp_s=0.05,
    )
    assert (result.errors, result.first_error) == (0, None)
    assert result.sent == result.completed == len(result.latencies_s) >= 16
    assert sorted(seen) == sorted([*range(10)] * result.completed)
    assert result.latencies_s[0] >= 0.04
    assert result.first_s[0] < result.latencies_s[0]


def test_closed_loop_sends_as_many_requests_as_it_is_told(engine: EngineUpstream) -> None:
    result = run_closed_loop(
        engine.port,
        http_request(chat_request(CHAT_MODEL)),
        lambda: ExactBody(chat_answer()),
        connections=4,
        window_s=30.0,
        requests=37,
    )
    assert (result.sent, result.completed, result.errors) == (37, 37, 0)


def test_closed_loop_counts_wrong_answers(engine: EngineUpstream) -> None:
    body = chat_request(CHAT_MODEL, user="status=500")
    result = run_closed_loop(
        engine.port, http_request(body), lambda: ExactBody(b""), connections=2, window_s=0.05
    )
    assert result.errors == result.sent > 0
    assert "status 500" in str(result.first_error)


def test_open_loop_sends_all_that_is_scheduled(engine: EngineUpstream) -> None:
    result = run_open_loop(
        engine.port,
        http_request(chat_request(CHAT_MODEL)),
        ExactBody(chat_answer()),
        rate_per_s=500,
        duration_s=0.4,
        connections=4,
    )
    assert (result.sent, result.errors, result.first_error) == (200, 0, None)
    assert len(result.latencies_s) == len(result.lags_s) == 200
    assert result.latencies_s[0] > 0


def test_engine_tells_usage_only_when_asked_and_counts_who_left(engine: EngineUpstream) -> None:
    for usage in (True, False):
        body = chat_request(STREAM_MODEL, stream=True, usage=usage, user="events=4")
        assert (usage_event(3) in ask(engine.port, http_request(body)).body) is usage
    before = engine.stats()
    endless = chat_request(STREAM_MODEL, stream=True, user="events=100 interval_ms=100")
    with pytest.raises(TimeoutError):
        ask(engine.port, http_request(endless), timeout_s=2.0)
    deadline = time.monotonic() + 60
    while (after := engine.stats())["open"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (after["aborted"] - before["aborted"], after["open"]) == (1, 0)


def test_probe_accepts_a_big_answer_and_complains_of_another(engine: EngineUpstream) -> None:
    padded = http_request(chat_request(CHAT_MODEL, user="bytes=300000"), close=True)
    good = Probe(engine.port, padded, ExactBody(chat_answer().ljust(300_000)))
    good()
    assert (good.sent, good.errors) == (1, 0)
    bad = Probe(engine.port, padded, ExactBody(b"{}"))
    bad()
    assert (bad.sent, bad.errors) == (1, 1)
    assert json.loads(ask(engine.port, padded).body)["object"] == "chat.completion"


def test_clients_report_a_server_that_is_not_there() -> None:
    port, request = free_port(), http_request(b"{}")
    closed = run_closed_loop(port, request, lambda: ExactBody(b""), connections=2, window_s=0.1)
    opened = run_open_loop(port, request, ExactBody(b""), rate_per_s=10, duration_s=0.1)
    probe = Probe(port, request, ExactBody(b""))
    probe()
    assert [closed.errors, opened.errors, probe.errors] == [1, 1, 1]
    assert (closed.completed, closed.answers_per_s) == (0, 0.0)
