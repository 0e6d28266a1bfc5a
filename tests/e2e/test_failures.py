"""Engines that fail, clients that leave: what the other side sees, and what the ledger says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import psutil
import pytest

from tests.support.duo import BREAKER_FAILURES, RESPONSE_TIMEOUT_S, Duo
from tests.support.engine import Behaviour
from tests.support.engine_answers import text_of
from tests.support.engine_script import Fault
from tests.support.gateway import wait_until
from tests.support.local_http import LOCAL
from tests.support.raw_http import RawClient, events_of, post

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
CHAT = "/v1/chat/completions"


@pytest.fixture
def client(duo: Duo) -> Iterator[openai.OpenAI]:
    with duo.gateway.client() as made:
        yield made


def read_text(client: openai.OpenAI, *, stream: bool, model: str = "toy") -> str:
    """The text of an answer, which must be complete."""
    if not stream:
        answer = client.chat.completions.create(model=model, messages=HELLO)
        assert answer.choices[0].finish_reason == "stop"
        return answer.choices[0].message.content or ""
    chunks = list(client.chat.completions.create(model=model, messages=HELLO, stream=True))
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param(Behaviour(fault="close"), id="closes the connection"),
        pytest.param(Behaviour(fault="reset"), id="resets the connection"),
        pytest.param(Behaviour(fault="malformed"), id="speaks no HTTP"),
        pytest.param(Behaviour(status=502), id="answers 502"),
        pytest.param(Behaviour(status=503, headers=("Retry-After: 9",)), id="answers 503"),
    ],
)
def test_another_replica_answers_when_the_first(
    duo: Duo, client: openai.OpenAI, behaviour: Behaviour, stream: bool
) -> None:
    duo.first(behaviour)
    assert read_text(client, stream=stream) == text_of(5)
    assert len(duo.a.received) == len(duo.b.received) == 1
    (row,) = duo.rows(1)
    assert (row.outcome, row.status, row.attempts) == ("ok", 200, 2)
    assert (row.prompt_tokens, row.output_tokens) == (11, 5)


def test_a_whole_answer_that_breaks_half_way_is_asked_for_again(
    duo: Duo, client: openai.OpenAI
) -> None:
    duo.first(Behaviour(fault="reset", fault_at=0))
    assert read_text(client, stream=False) == text_of(5)
    (row,) = duo.rows(1)
    assert (row.outcome, row.attempts) == ("ok", 2)


def test_another_replica_answers_when_the_first_never_does(duo: Duo, client: openai.OpenAI) -> None:
    duo.first(Behaviour(fault="hang"))
    started_s = time.monotonic()
    assert read_text(client, stream=True) == text_of(5)
    assert time.monotonic() - started_s >= RESPONSE_TIMEOUT_S
    wait_until(lambda: duo.sum("aborted") == 1, "the silent attempt was given up")
    (row,) = duo.rows(1)
    assert (row.outcome, row.attempts) == ("ok", 2)


def test_no_request_fails_when_an_engine_is_killed(duo: Duo, client: openai.OpenAI) -> None:
    duo.a.die()
    for _ in range(10):
        assert read_text(client, stream=False) == text_of(5)
    assert {row.replica for row in duo.rows(10)} == {"b"}
    wait_until(lambda: duo.gateway.replica("a")["state"] == "down", "the dead engine is down")


def test_an_engine_that_was_restarted_between_two_requests_goes_unnoticed(
    duo: Duo, client: openai.OpenAI
) -> None:
    for _ in range(5):
        assert read_text(client, stream=False, model="a") == text_of(5)
        duo.a.die()
        duo.a.listen()
    assert {row.outcome for row in duo.rows(5)} == {"ok"}


def test_an_engine_that_is_not_well_gets_no_request_until_it_is(
    duo: Duo, client: openai.OpenAI
) -> None:
    duo.a.healthy = False
    wait_until(lambda: duo.gateway.replica("a")["state"] == "down", "down after its checks")
    # The supervisor knows; the worker, which answers this, is told.
    wait_until(lambda: "a" not in [m.id for m in client.models.list()], "the worker knows too")
    with pytest.raises(openai.InternalServerError, match="no replica") as caught:
        read_text(client, stream=False, model="a")
    assert caught.value.status_code == 503
    assert {read_text(client, stream=False) for _ in range(10)} == {text_of(5)}
    assert not duo.a.received
    duo.a.healthy = True
    wait_until(lambda: "a" in [m.id for m in client.models.list()], "the worker knows")
    assert read_text(client, stream=False, model="a") == text_of(5)


def test_an_operator_takes_a_replica_away_and_gives_it_back(
    duo: Duo, client: openai.OpenAI
) -> None:
    duo.gateway.admin("/api/v1/replicas/a/disable", "POST")
    wait_until(lambda: duo.gateway.replica("a")["state"] == "disabled", "disabled")
    wait_until(lambda: "a" not in [m.id for m in client.models.list()], "the worker knows")
    assert {read_text(client, stream=False) for _ in range(10)} == {text_of(5)}
    assert not duo.a.received
    duo.gateway.admin("/api/v1/replicas/a/enable", "POST")
    wait_until(lambda: "a" in [m.id for m in client.models.list()], "the worker knows")
    assert read_text(client, stream=False, model="a") == text_of(5)


def test_a_refusal_of_the_only_replica_names_it(duo: Duo, client: openai.OpenAI) -> None:
    duo.a.behaviour = Behaviour(fault="reset")
    with pytest.raises(openai.InternalServerError, match=r"a: connection") as caught:
        read_text(client, stream=True, model="a")
    assert caught.value.status_code == 502
    assert caught.value.code == "upstream_failed"
    (row,) = duo.rows(1)
    assert (row.outcome, row.status) == ("failed", 502)


@pytest.mark.parametrize("status", [400, 404, 422, 429, 500])
def test_an_engine_s_own_error_comes_through_and_is_not_tried_elsewhere(
    duo: Duo, client: openai.OpenAI, status: int
) -> None:
    duo.set(Behaviour(status=status, message="your fault", headers=("Retry-After: 7",)))
    for _ in range(BREAKER_FAILURES + 1):
        with pytest.raises(openai.APIStatusError, match="your fault") as caught:
            read_text(client, stream=True)
        assert caught.value.status_code == status
        assert caught.value.code == f"said_{status}"
        assert caught.value.response.headers["retry-after"] == "7"
    assert len(duo.received()) == BREAKER_FAILURES + 1
    expected = "ok" if status < 500 else "failed"
    assert {(r.outcome, r.status) for r in duo.rows(BREAKER_FAILURES + 1)} == {(expected, status)}


MIDSTREAM: list[Fault] = ["close", "reset", "malformed", "half_event"]


@pytest.mark.parametrize("fault", MIDSTREAM)
def test_a_stream_that_breaks_raises_in_the_client(
    duo: Duo, client: openai.OpenAI, fault: Fault
) -> None:
    duo.set(Behaviour(hold_at=2, fault=fault, fault_at=2))
    stream = client.chat.completions.create(model="toy", messages=HELLO, stream=True)
    pieces = [next(stream).choices[0].delta.content for _ in range(3)]
    assert pieces == ["", "0 ", "1 "]
    duo.release()
    with pytest.raises(openai.APIError, match=r"connection|malformed") as caught:
        next(stream)
    assert caught.value.code == "upstream_failed"
    assert len(duo.received()) == 1, "after the first byte there is no second attempt"
    (row,) = duo.rows(1)
    assert (row.outcome, row.status, row.output_tokens_counted) == ("failed", 200, 2)


@pytest.mark.parametrize("fault", MIDSTREAM)
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/responses", "/v1/messages"])
def test_a_stream_that_breaks_ends_with_an_error_event_and_the_connection_lives(
    duo: Duo, path: str, fault: Fault
) -> None:
    body = {"model": "toy", "stream": True, "max_tokens": 9}
    body |= {"messages": HELLO} if path in (CHAT, "/v1/messages") else {}
    body |= {"prompt": "hello"} if path == "/v1/completions" else {}
    body |= {"input": "hello"} if path == "/v1/responses" else {}
    duo.first(Behaviour(hold_at=2, fault=fault, fault_at=2))
    with RawClient(duo.gateway.port) as raw:
        raw.send(post(path, body))
        raw.read_head()
        begun = b""
        while b'1 "' not in begun:
            begun += raw.read_chunk()
        duo.release()
        events = events_of(begun + b"".join(iter(raw.read_chunk, b"")))
        again = events_of(raw.ask(post(path, body)).body)
    if path in (CHAT, "/v1/completions"):
        assert events.pop() == "[DONE]"
        assert events[-1]["error"]["code"] == "upstream_failed"
    elif path == "/v1/messages":
        assert (events[-1]["type"], events[-1]["error"]["type"]) == ("error", "api_error")
    else:
        assert (events[-1]["type"], events[-1]["code"]) == ("error", "upstream_failed")
    assert len(again) > len(events)
    assert [row.outcome for row in duo.rows(2)] == ["failed", "ok"]


def test_a_whole_answer_without_length_that_ends_early_is_asked_for_again(
    duo: Duo, client: openai.OpenAI
) -> None:
    duo.first(Behaviour(framing="close", fault="close", fault_at=0))
    assert read_text(client, stream=False) == text_of(5)
    (row,) = duo.rows(1)
    assert (row.outcome, row.attempts) == ("ok", 2)


def test_a_stream_without_length_that_ends_early_is_no_complete_answer(
    duo: Duo, client: openai.OpenAI
) -> None:
    duo.set(Behaviour(framing="close", hold_at=2, fault="close", fault_at=2))
    stream = client.chat.completions.create(model="toy", messages=HELLO, stream=True)
    assert [next(stream).choices[0].delta.content for _ in range(3)] == ["", "0 ", "1 "]
    duo.release()
    with pytest.raises(openai.APIError, match="connection closed"):
        next(stream)
    assert [row.outcome for row in duo.rows(1)] == ["failed"]


def test_breaker_opens_after_failures_in_a_row_and_recovers_by_a_probe(
    duo: Duo, client: openai.OpenAI
) -> None:
    duo.a.behaviour = Behaviour(fault="reset")
    for _ in range(BREAKER_FAILURES):
        with pytest.raises(openai.InternalServerError):
            read_text(client, stream=False, model="a")
    asked = len(duo.a.received)
    with pytest.raises(openai.InternalServerError, match="no replica") as caught:
        read_text(client, stream=False, model="a")
    assert caught.value.status_code == 503
    assert caught.value.response.headers["retry-after"] in ("1", "2")
    assert len(duo.a.received) == asked, "an open breaker lets nothing through"
    assert read_text(client, stream=False) == text_of(5), "the other replica takes all"
    wait_until(lambda: duo.gateway.replica("a")["state"] in ("open", "half_open"), "shown as open")
    duo.a.behaviour = Behaviour()
    with duo.gateway.client(max_retries=5) as patient:
        assert read_text(patient, stream=False, model="a") == text_of(5)
    wait_until(lambda: duo.gateway.replica("a")["state"] == "up", "shown as up")


def test_official_client_waits_as_long_as_retry_after_says(duo: Duo) -> None:
    duo.a.behaviour = Behaviour(fault="reset")
    with duo.gateway.client() as hasty:
        for _ in range(BREAKER_FAILURES):
            with pytest.raises(openai.InternalServerError):
                read_text(hasty, stream=False, model="a")
    duo.a.behaviour = Behaviour()
    started_s = time.monotonic()
    with duo.gateway.client(max_retries=1) as client:
        assert read_text(client, stream=True, model="a") == text_of(5)
    assert time.monotonic() - started_s >= 1.0


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param(Behaviour(fault="kept_alive"), id="as the next request comes"),
        pytest.param(Behaviour(keep_alive=False), id="after each answer, without a word"),
    ],
)
def test_client_does_not_notice_an_engine_that_closes_kept_alive_connections(
    duo: Duo, client: openai.OpenAI, behaviour: Behaviour
) -> None:
    duo.set(behaviour)
    for _ in range(10):
        assert read_text(client, stream=False) == text_of(5)
    wait_until(lambda: duo.sum("finished") == 10, "the generations ended")
    assert duo.sum("started") == 10, "every generation was run exactly once"
    assert {(row.outcome, row.attempts) for row in duo.rows(10)} == {("ok", 1)}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_generation_is_given_up_when_the_client_leaves(duo: Duo, stream: bool) -> None:
    duo.set(Behaviour(hold_at=2 if stream else 0))
    body = {"model": "toy", "messages": HELLO, "stream": stream}
    with RawClient(duo.gateway.port) as raw:
        raw.send(post(CHAT, body))
        if stream:
            raw.read_head()
            raw.read_chunk()
        wait_until(lambda: duo.sum("running") == 1, "the engine works")
    wait_until(lambda: duo.sum("aborted") == 1, "the generation was given up")
    (row,) = duo.rows(1)
    assert (row.outcome, row.reason) == ("cancelled", "client_gone")
    assert row.status == (200 if stream else 499)


def test_a_client_that_leaves_at_the_last_event_has_the_whole_answer(
    duo: Duo, client: openai.OpenAI
) -> None:
    # The official client closes its connection as soon as it has read "[DONE]".
    duo.set(Behaviour(end_s=0.5))
    for _ in range(4):
        assert read_text(client, stream=True) == text_of(5)
    assert {(row.outcome, row.output_tokens) for row in duo.rows(4)} == {("ok", 5)}
    wait_until(lambda: duo.sum("finished") == 4, "the engine ended its answers")
    assert not duo.sum("aborted"), "the connections to the engine live on"


def test_an_engine_that_never_ends_its_answer_does_not_keep_the_client(
    duo: Duo, client: openai.OpenAI
) -> None:
    duo.set(Behaviour(end_s=60.0))
    with RawClient(duo.gateway.port) as raw:
        body = {"model": "toy", "messages": HELLO, "stream": True}
        assert events_of(raw.ask(post(CHAT, body)).body)[-1] == "[DONE]"
    wait_until(lambda: duo.sum("aborted") == 1, "the connection was given up")
    assert [row.outcome for row in duo.rows(1)] == ["ok"]


def test_client_s_own_timeout_gives_the_generation_up(duo: Duo) -> None:
    duo.set(Behaviour(hold_at=0))
    with duo.gateway.client(timeout=2.0) as client, pytest.raises(openai.APITimeoutError):
        read_text(client, stream=True)
    wait_until(lambda: duo.sum("aborted") == 1, "the generation was given up")
    assert [row.outcome for row in duo.rows(1)] == ["cancelled"]


def test_a_client_that_reads_slowly_slows_the_engine_and_fills_no_memory(duo: Duo) -> None:
    tokens, token_bytes = 20_000, 4096
    size = tokens * token_bytes
    duo.set(Behaviour(tokens=tokens, token_bytes=token_bytes))
    (worker,) = duo.gateway.workers()
    before = rss_bytes(worker)
    body = {"model": "toy", "messages": HELLO, "stream": True}
    with RawClient(duo.gateway.port, receive_bytes=65_536) as raw:
        raw.send(post(CHAT, body))
        raw.read_head()
        written = wait_until(lambda: stalled(duo), "the engine is stalled")
        assert written < size / 2, "the engine ran ahead of the client"
        assert rss_bytes(worker) - before < 16 * 2**20
        received = sum(map(len, iter(raw.read_chunk, b"")))
    assert received > size
    assert rss_bytes(worker) - before < 16 * 2**20
    (row,) = duo.rows(1)
    assert (row.outcome, row.output_tokens_counted) == ("ok", tokens)


def test_a_slow_client_that_leaves_ends_the_generation(duo: Duo) -> None:
    duo.set(Behaviour(tokens=20_000, token_bytes=4096))
    with RawClient(duo.gateway.port, receive_bytes=65_536) as raw:
        raw.send(post(CHAT, {"model": "toy", "messages": HELLO, "stream": True}))
        raw.read_head()
        wait_until(lambda: stalled(duo), "the engine is stalled")
    wait_until(lambda: duo.sum("aborted") == 1, "the generation was given up")
    assert [row.outcome for row in duo.rows(1)] == ["cancelled"]


def rss_bytes(process: psutil.Process) -> int:
    return int(process.memory_info().rss)


def stalled(duo: Duo) -> int:
    """Bytes that the engine wrote, once it wrote none for half a second."""
    before = duo.sum("bytes_streamed")
    time.sleep(0.5)
    return before if before and before == duo.sum("bytes_streamed") else 0


def test_answers_of_unknown_length_are_served_whole(duo: Duo) -> None:
    duo.set(Behaviour(framing="close"))
    with httpx.Client(base_url=duo.gateway.url, **LOCAL) as client:
        body = {"model": "toy", "messages": HELLO}
        whole = client.post("/chat/completions", json=body)
        streamed = client.post("/chat/completions", json={**body, "stream": True})
    assert whole.json()["choices"][0]["message"]["content"] == text_of(5)
    assert events_of(streamed.content)[-1] == "[DONE]"
    assert [row.outcome for row in duo.rows(2)] == ["ok", "ok"]
