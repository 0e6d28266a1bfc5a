"""Requests in every form that HTTP/1.1 allows, and in forms that it does not, at a real gateway."""

from __future__ import annotations

import re
from typing import Any

import httpx
import msgspec
import pytest

from mileage.core.request_name import NamedRequest, read_request_name
from tests.support.duo import Duo
from tests.support.engine import Behaviour, Received
from tests.support.engine_answers import text_of
from tests.support.gateway import wait_until
from tests.support.local_http import LOCAL
from tests.support.raw_http import Answer, RawClient, events_of, post

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "toy", "messages": HELLO}
ORIGIN = "https://app.example"


def content(answer: Answer) -> str:
    assert answer.status == 200, answer
    return str(answer.json["choices"][0]["message"]["content"])


def only_received(duo: Duo) -> Received:
    (request,) = duo.received()
    assert isinstance(request, Received)
    return request


def test_pipelined_requests_are_answered_in_order(duo: Duo) -> None:
    duo.first(Behaviour(first_token_s=0.3))
    lengths = [5, 1, 4, 2, 3]
    with RawClient(duo.gateway.port) as raw:
        raw.send(b"".join(post(CHAT, {**BODY, "max_tokens": n}) for n in lengths))
        raw.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert [content(raw.read()) for _ in lengths] == [text_of(n) for n in lengths]
        assert raw.read().body == b"ok\n"
    assert len(duo.rows(5)) == 5


def test_pipelined_streams_are_answered_in_order(duo: Duo) -> None:
    with RawClient(duo.gateway.port) as raw:
        raw.send(b"".join(post(CHAT, {**BODY, "stream": True, "max_tokens": n}) for n in (3, 1, 2)))
        tokens = []
        for _ in range(3):
            events = events_of(raw.read().body)
            tokens.append(sum(bool(e["choices"][0]["delta"].get("content")) for e in events[:-1]))
    assert tokens == [3, 1, 2]


def test_body_is_asked_for_where_the_client_waits_for_that(duo: Duo) -> None:
    head, _, body = post(CHAT, BODY, "Expect: 100-continue").partition(b"\r\n\r\n")
    with RawClient(duo.gateway.port) as raw:
        raw.send(head + b"\r\n\r\n")
        assert raw.read_head() == (100, {})
        assert content(raw.ask(body)) == text_of(5)


def test_chunked_body_reaches_the_engine_whole(duo: Duo) -> None:
    body = msgspec.json.encode({**BODY, "metadata": {"é": "\u2028" * 50}})
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with RawClient(duo.gateway.port) as raw:
        raw.send(head)
        for at in range(0, len(body), 7):
            part = body[at : at + 7]
            raw.send(b"%x;ext=1\r\n%b\r\n" % (len(part), part))
        assert content(raw.ask(b"0\r\nTrailer: dropped\r\n\r\n")) == text_of(5)
    request = only_received(duo)
    assert request.body == body
    assert request.header("trailer") is None
    assert request.header("transfer-encoding") is None


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_http_1_0_client_gets_the_answer_and_the_close_that_ends_it(duo: Duo, stream: bool) -> None:
    with RawClient(duo.gateway.port) as raw:
        answer = raw.ask(post(CHAT, {**BODY, "stream": stream}, version="1.0"))
        assert raw.closed()
    assert "transfer-encoding" not in answer.headers
    if stream:
        assert events_of(answer.body)[-1] == "[DONE]"
    else:
        assert content(answer) == text_of(5)


def test_offer_to_upgrade_to_http_2_is_ignored_and_the_body_served(duo: Duo) -> None:
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    with RawClient(duo.gateway.port) as raw:
        for _ in range(2):
            assert content(raw.ask(post(CHAT, BODY, *offer))) == text_of(5)
    for request in duo.received():
        assert request.json == BODY
        assert {"upgrade", "http2-settings"}.isdisjoint(dict(request.headers))


def test_only_headers_that_concern_the_engine_reach_it(duo: Duo) -> None:
    extra = ("Cookie: session=secret", "Connection: keep-alive", "X-Forwarded-For: 1.2.3.4")
    with RawClient(duo.gateway.port) as raw:
        raw.ask(post(CHAT, BODY, *extra, "X-Request-Id: mine"))
    names = {name for name, _ in only_received(duo).headers}
    assert names == {"host", "content-type", "content-length", "x-request-id"}


@pytest.mark.parametrize(
    ("request_bytes", "status", "message"),
    [
        pytest.param(b"NONSENSE\r\n\r\n", 400, "malformed", id="no request line"),
        pytest.param(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            "malformed",
            id="a length beside chunks",
        ),
        pytest.param(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
            b"Content-Length: 6\r\n\r\n",
            400,
            "malformed",
            id="two lengths",
        ),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\nHost: ::1\r\nX: " + b"x" * 70_000, 431, "headers", id="long"
        ),
        pytest.param(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: ::1\r\nContent-Length: 99999999\r\n\r\n",
            413,
            "body",
            id="a body above the limit",
        ),
        pytest.param(b"GET /healthz HTTP/1.1\r\n\r\n", 400, "Host", id="no host"),
    ],
)
def test_what_is_no_request_gets_a_clear_refusal_and_the_close(
    duo: Duo, request_bytes: bytes, status: int, message: str
) -> None:
    with RawClient(duo.gateway.port) as raw:
        answer = raw.ask(request_bytes)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert message in answer.json["error"]["message"]
        assert raw.closed()
    assert not duo.received()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        pytest.param(b"{", None, id="no JSON"),
        pytest.param(b'{"model": "toy", "messages": "\xff"}', None, id="no UTF-8"),
        pytest.param(b'{"messages": [{}]}', "model", id="no model"),
        pytest.param(b'{"model": 5, "messages": [{}]}', "model", id="a number as model"),
        pytest.param(b'{"model": "toy", "messages": []}', "messages", id="no message"),
        pytest.param(
            b'{"model": "toy", "messages": [{}], "max_tokens": -1}', "max_tokens", id="less than 0"
        ),
        pytest.param(
            b'{"model": "toy", "messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            None,
            id="nested without end",
        ),
    ],
)
def test_bad_body_is_refused_by_the_field_and_the_connection_lives(
    duo: Duo, body: bytes, param: str | None
) -> None:
    with RawClient(duo.gateway.port) as raw:
        answer = raw.ask(post(CHAT, body))
        assert (answer.status, answer.json["error"]["param"]) == (400, param)
        assert content(raw.ask(post(CHAT, BODY))) == text_of(5)


def test_browser_of_an_allowed_origin_may_ask(duo: Duo) -> None:
    with httpx.Client(base_url=duo.gateway.root, headers={"origin": ORIGIN}, **LOCAL) as client:
        wanted = {
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization, content-type",
        }
        allowed = client.options(CHAT, headers=wanted)
        asked = client.post(CHAT, json=BODY)
        streamed = client.post(CHAT, json={**BODY, "stream": True})
        refused = client.post(CHAT, json={})
    assert allowed.status_code == 204
    assert "POST" in allowed.headers["access-control-allow-methods"]
    assert allowed.headers["access-control-allow-headers"] == "authorization, content-type"
    for answer in (allowed, asked, streamed, refused):
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert answer.headers["vary"] == "origin"
    assert (asked.status_code, streamed.status_code, refused.status_code) == (200, 200, 400)


def test_browser_of_another_origin_may_not(duo: Duo) -> None:
    with httpx.Client(
        base_url=duo.gateway.root, headers={"origin": "https://evil"}, **LOCAL
    ) as client:
        preflight = client.options(CHAT, headers={"access-control-request-method": "POST"})
        asked = client.post(CHAT, json=BODY)
    assert preflight.status_code == 403
    assert "access-control-allow-origin" not in asked.headers


def test_trace_context_reaches_the_engine_and_the_ledger(duo: Duo) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {
        "traceparent": f"00-{trace_id}-00f067aa0ba902b7-01",
        "tracestate": "vendor=1",
        "x-request-id": "from-the-client",
    }
    httpx.post(f"{duo.gateway.url}/chat/completions", json=BODY, headers=headers, **LOCAL)
    request = only_received(duo)
    own = headers.pop("x-request-id")
    assert {name: request.header(name) for name in headers} == headers
    (row,) = duo.rows(1)
    assert row.trace_id == trace_id
    # An engine of the kind vllm is told ours behind it.
    name = request.header("x-request-id") or ""
    assert name.startswith(f"{own}.req-")
    assert read_request_name(name) == NamedRequest(name[-8:], row.id)


def test_request_id_is_the_same_for_client_and_engine(duo: Duo) -> None:
    answer = httpx.post(f"{duo.gateway.url}/chat/completions", json=BODY, **LOCAL)
    request_id = only_received(duo).header("x-request-id")
    (row,) = duo.rows(1)
    assert answer.headers["x-request-id"] == f"req-{row.id:x}"
    assert re.fullmatch(rf"req-{row.id:x}\.[0-9a-f]{{8}}", request_id or "")


def test_alias_is_listed_and_the_engine_gets_the_real_name(duo: Duo) -> None:
    with httpx.Client(base_url=duo.gateway.url, **LOCAL) as client:
        listed = {entry["id"] for entry in client.get("/models").json()["data"]}
        answer = client.post("/chat/completions", json={**BODY, "model": "gpt-4o", "seed": 7})
    assert listed == {"toy", "a", "b", "gpt-4o"}
    assert answer.status_code == 200
    assert only_received(duo).json == {**BODY, "seed": 7}
    assert [row.model for row in duo.rows(1)] == ["toy"]


def test_every_field_of_the_official_client_reaches_the_engine_as_it_was(duo: Duo) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    fields: dict[str, Any] = {
        "model": "toy",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "¿qué? \u2028 😀"}]}],
        "tools": [tool],
        "tool_choice": "auto",
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}},
        "logit_bias": {"50256": -100},
        "temperature": 0.25,
        "top_logprobs": 3,
        "logprobs": True,
        "metadata": {"b": "2", "a": "1"},
    }
    extra = {"min_p": 0.05, "guided_choice": ["x", "y"]}
    with duo.gateway.client() as client:
        client.chat.completions.create(**fields, extra_body=extra)
        client.chat.completions.create(
            **fields, extra_body=extra, stream=True, stream_options={"include_usage": False}
        ).close()
        wait_until(lambda: len(duo.received()) == 2, "both came")
    bodies = [request.json for request in duo.received()]
    whole = next(body for body in bodies if not body.get("stream"))
    stream = next(body for body in bodies if body.get("stream"))
    assert whole == {**fields, **extra}
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    assert stream == {**fields, **extra, **asked}


def test_client_s_key_goes_to_the_engine_where_the_gateway_has_none(duo: Duo) -> None:
    headers = {"authorization": "Bearer of-the-engine"}
    httpx.post(f"{duo.gateway.url}/chat/completions", json=BODY, headers=headers, **LOCAL)
    assert only_received(duo).header("authorization") == "Bearer of-the-engine"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("GET", CHAT, 405, id="GET of a POST"),
        pytest.param("DELETE", "/v1/models", 405, id="DELETE of a GET"),
        pytest.param("GET", "/v1/nothing", 404, id="no such path"),
        pytest.param("GET", "/healthz", 200, id="alive"),
        pytest.param("GET", "/readyz", 200, id="ready"),
        pytest.param("HEAD", "/v1/models", 200, id="HEAD"),
        pytest.param("GET", "/v1/models/gpt%2D4o", 200, id="name percent-encoded"),
    ],
)
def test_paths_and_methods(duo: Duo, method: str, path: str, status: int) -> None:
    with httpx.Client(base_url=duo.gateway.root, **LOCAL) as client:
        answer = client.request(method, path)
        assert answer.status_code == status
        assert client.get("/healthz").text == "ok\n"
    if status == 405:
        assert answer.headers["allow"] == ("POST" if path == CHAT else "GET")
