"""Outcomes of real calls: whatever a server does is counted, named and timed."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.run import LoadRun, run_load
from mileage.loadgen.run_options import RunOptions
from mileage.loadgen.target import Target
from mileage.measure.call_record import CallRecord
from tests.support.certificate import write_certificate
from tests.support.loopback_server import Answer, Hang, LoopbackServer, Reset, http

WORD = b'data: {"choices": [{"delta": {"content": "word"}}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}\n\n'
DONE = b"data: [DONE]\n\n"
EVENT_STREAM = "Content-Type: text/event-stream; charset=utf-8"
WHOLE = {"choices": [{"message": {"content": "hi"}}], "usage": {"prompt_tokens": 3}}
PROMPT = "a secret of some length that nobody is to read"
BODY = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": PROMPT}]})


def chunked(*parts: bytes, end: bytes = b"0\r\n\r\n", head: str = EVENT_STREAM) -> bytes:
    """An answer in chunks."""
    lines = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{head}\r\n\r\n".encode()
    return lines + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + end


def call(**fields: Any) -> PlannedCall:
    """A chat call that is due at once."""
    usual = {"index": 0, "scheduled_s": 0.0, "path": b"/v1/chat/completions", "body": BODY}
    return PlannedCall(**{**usual, "model": "m", **fields})


def run(story: Callable[[], Coroutine[Any, Any, LoadRun]]) -> LoadRun:
    """Run on the loop that load is generated on."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(story())


def asked(answer: Answer, options: RunOptions | None = None, **fields: Any) -> CallRecord:
    """The record of one call to a server that gives this answer."""

    async def story() -> LoadRun:
        async with LoopbackServer(lambda _: answer) as server:
            target = Target(url=server.url)
            return await run_load([call(**fields)], [target], options or RunOptions())

    (record,) = run(story).records
    return record


OUTCOMES = [
    pytest.param(chunked(WORD, WORD, USAGE, DONE), "ok", None, id="a whole stream"),
    pytest.param(
        chunked(WORD, b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'),
        "ok",
        None,
        id="a stream with a reason to finish and no [DONE]",
    ),
    pytest.param(chunked(WORD, DONE, end=b""), "ok", None, id="[DONE], then no end of HTTP"),
    pytest.param(chunked(USAGE, DONE), "ok", None, id="tokens that make no text"),
    pytest.param(chunked(DONE), "malformed", "no token", id="no token at all"),
    pytest.param(chunked(WORD), "cut", "without its end", id="a stream without its end"),
    pytest.param(chunked(WORD, end=b""), "cut", "closed early", id="closed in the middle"),
    pytest.param(Reset(chunked(WORD, end=b"")), "cut", "", id="reset in the middle"),
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-", "cut", "closed", id="cut within the head"),
    pytest.param(b"", "broken", "closed early", id="closed without an answer"),
    pytest.param(Reset(), "broken", "", id="reset without an answer"),
    pytest.param(b"220 mail ready\r\n", "malformed", "malformed answer", id="no HTTP"),
    pytest.param(http(200, b"<p>hi"), "malformed", "no event stream", id="a page, no stream"),
    pytest.param(
        http(200, msgspec.json.encode(WHOLE), ["Content-Type: application/json"]),
        "malformed",
        "application/json",
        id="a whole answer to who asked for a stream",
    ),
    pytest.param(http(200, b"z" * 300_000), "malformed", "no event stream", id="a page of 300 KB"),
    pytest.param(
        chunked(b"\x1f\x8b..", head=f"{EVENT_STREAM}\r\nContent-Encoding: gzip"),
        "malformed",
        "its content is encoded: gzip",
        id="a compressed stream, which nobody asked for",
    ),
    pytest.param(
        http(200, b'{"error": {"message": "boom"}}'), "server_error", "boom", id="200 and an error"
    ),
    pytest.param(chunked(b"data: {oops\n\n", DONE), "malformed", "no JSON", id="a broken event"),
    pytest.param(
        chunked(WORD, b'data: {"error": {"message": "boom"}}\n\n', DONE),
        "server_error",
        "an error event: boom",
        id="an error event",
    ),
    pytest.param(
        http(404, b'{"error": {"message": "The model `m` does not exist."}}'),
        "client_error",
        "status 404: The model `m` does not exist.",
        id="a wrong model",
    ),
    pytest.param(http(400, b"not JSON"), "client_error", "status 400", id="an error in text"),
    pytest.param(http(429), "rejected", "status 429", id="too many"),
    pytest.param(http(503), "rejected", "status 503", id="unavailable"),
    pytest.param(http(500), "server_error", "status 500", id="a failure"),
    pytest.param(http(302), "malformed", "status 302", id="a redirection"),
    pytest.param(http(204), "malformed", "status 204", id="nothing"),
]


@pytest.mark.parametrize(("answer", "outcome", "error"), OUTCOMES)
def test_every_answer_has_a_name(answer: Answer, outcome: str, error: str | None) -> None:
    record = asked(answer)
    assert record.outcome == outcome
    if error is None:
        assert record.error is None
    else:
        assert record.error is not None
        assert error in record.error
    assert record.ended_s is not None
    assert record.attempts == 1


@pytest.mark.parametrize(
    ("answer", "endpoint", "outcome"),
    [
        pytest.param(http(200, msgspec.json.encode(WHOLE)), "chat", "ok", id="a whole answer"),
        pytest.param(http(200, b'{"data": [{}]}'), "embeddings", "ok", id="an embedding"),
        pytest.param(http(200, b'{"data": []}'), "embeddings", "malformed", id="no embedding"),
        pytest.param(http(200, b'{"choices": []}'), "chat", "malformed", id="no choice"),
        pytest.param(http(200, b"hi"), "chat", "malformed", id="no JSON"),
        pytest.param(chunked(WORD, DONE), "chat", "malformed", id="a stream nobody asked for"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "chat", "cut", id="half of one"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n\r\n" + msgspec.json.encode(WHOLE), "chat", "ok", id="no length"
        ),
    ],
)
def test_whole_answers_are_judged(answer: Answer, endpoint: Any, outcome: str) -> None:
    assert asked(answer, stream=False, endpoint=endpoint).outcome == outcome


def test_times_follow_one_another_and_usage_is_the_engines() -> None:
    record = asked(chunked(WORD, WORD, USAGE, DONE).replace(b"Trans", b"X-Request-Id: r7\r\nTrans"))
    assert record.taken_s is not None
    assert record.connected_s is not None
    assert record.sent_s is not None
    assert record.answered_s is not None
    assert record.ended_s is not None
    times_s = [record.scheduled_s, record.taken_s, record.connected_s, record.sent_s]
    times_s += [record.answered_s, *record.token_times_s, record.ended_s]
    assert times_s == sorted(times_s)
    assert sum(record.token_events) == 2
    assert (record.prompt_tokens, record.output_tokens, record.cached_tokens) == (7, 2, None)
    assert (record.status, record.request_id) == (200, "r7")


def test_no_message_quotes_the_prompt() -> None:
    text = f"bad: {{'content': '{PROMPT}'}}"
    record = asked(http(400, msgspec.json.encode({"error": {"message": text}})))
    assert record.error is not None
    assert record.error.startswith("status 400: bad: ")
    assert "secret" not in record.error


def test_silence_is_a_timeout() -> None:
    record = asked(Hang(chunked(WORD, end=b"")), RunOptions(response_timeout_s=1.0))
    assert record.outcome == "timeout"
    assert sum(record.token_events) == 1


def test_the_drain_ends_what_takes_too_long() -> None:
    record = asked(Hang(), RunOptions(drain_s=0.1))
    assert (record.outcome, record.answered_s) == ("timeout", None)
    assert record.error == "no whole answer 0.1 s after the last call was due"


def test_a_client_that_leaves_is_no_failure() -> None:
    record = asked(Hang(chunked(WORD, end=b"")), cancel_after_s=0.5)
    assert (record.outcome, record.error) == ("cancelled", None)
    assert record.sent_s is not None
    assert record.ended_s is not None
    assert record.ended_s - record.sent_s >= 0.45
    assert sum(record.token_events) == 1


def test_a_server_that_is_down_is_named() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken, and never listening
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        result = run(lambda: run_load([call()], [Target(url=url)], RunOptions()))
    (record,) = result.records
    assert record.outcome == "connect"
    assert record.error is not None
    assert "refused" in record.error
    assert record.sent_s is None


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        pytest.param({"path": b"/a b"}, "a path that cannot be sent", id="a path with a space"),
        pytest.param({"headers": ((b"x", b"a\r\nb"),)}, "a header that", id="two headers in one"),
        pytest.param({"target": 3}, "there is no target 3", id="a target that is none"),
    ],
)
def test_what_cannot_be_sent_is_recorded(fields: dict[str, Any], error: str) -> None:
    record = asked(http(200), **fields)
    assert record.outcome == "unsent"
    assert record.error is not None
    assert error in record.error


def test_the_request_carries_what_it_should() -> None:
    async def story() -> LoadRun:
        async with LoopbackServer(lambda _: chunked(WORD, DONE)) as server:
            target = Target(url=server.url + "/prefix", authorization="Bearer k")
            result = await run_load([call(headers=((b"x-a", b"1"),))], [target], RunOptions())
            (seen,) = server.seen
            assert (seen.method, seen.target) == ("POST", "/prefix/v1/chat/completions")
            assert seen.body == BODY
            assert seen.headers["authorization"] == "Bearer k"
            assert seen.headers["x-a"] == "1"
            assert seen.headers["accept"] == "text/event-stream"
            assert seen.headers["content-type"] == "application/json"
            assert server.url.endswith(seen.headers["host"])
            return result

    assert run(story).records[0].outcome == "ok"


@pytest.mark.parametrize(("verify", "outcome"), [(False, "ok"), (True, "connect")])
def test_https_is_spoken_and_certificates_are_checked(
    tmp_path: Path, verify: bool, outcome: str
) -> None:
    certificate, key = write_certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def story() -> LoadRun:
        async with LoopbackServer(lambda _: chunked(WORD, DONE), context=context) as server:
            return await run_load([call()], [Target(url=server.url, verify=verify)], RunOptions())

    (record,) = run(story).records
    assert record.outcome == outcome
    assert (record.sent_s is None) is verify
