"""What an engine is sent of a call, and what a refused client is told."""

from __future__ import annotations

import msgspec
import pytest

from mileage.core.actions import Reject, RejectReason
from mileage.core.events import FailureKind
from mileage.core.request import Request
from mileage.gateway.bodies import parse_body
from mileage.gateway.call import Call
from mileage.gateway.config import Upstream
from mileage.gateway.refusals import rejection
from mileage.gateway.target import Target
from mileage.wire.message import HttpRequest

BODY = msgspec.json.encode(
    {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
)


def call() -> Call:
    http = HttpRequest()
    http.body = BODY
    request = Request(
        id=255,
        tenant="t",
        model="m",
        endpoint="chat",
        stream=True,
        arrived_s=0.0,
        prompt_tokens_estimate=1,
    )
    return Call(
        http,
        parse_body("chat", BODY),
        request,
        headers=b"traceparent: x\r\n",
        credentials=b"authorization: Bearer client\r\n",
        answer_head=b"",
        arrived_at_utc_ns=0,
        trace_id=None,
    )


@pytest.mark.parametrize(
    ("own", "sent"),
    [
        pytest.param(None, [b"Bearer client"], id="no key of ours: the client's own"),
        pytest.param("Bearer ours", [b"Bearer ours"], id="a key of ours: only that"),
    ],
)
def test_an_engine_gets_one_key(own: str | None, sent: list[bytes]) -> None:
    target = Target(Upstream(name="a", url="http://engine:8000/base", authorization=own))
    head, _, body = call().upstream_request(target).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /base/v1/chat/completions HTTP/1.1"
    assert b"host: engine:8000" in lines
    assert b"traceparent: x" in lines
    assert [line[15:] for line in lines if line.startswith(b"authorization: ")] == sent
    assert b"content-length: %d" % len(body) in lines
    assert msgspec.json.decode(body)["stream_options"] == {"include_usage": True}


def test_an_engine_that_does_not_know_the_option_is_not_asked_for_usage() -> None:
    target = Target(Upstream(name="a", url="http://engine", stream_usage=False))
    assert call().upstream_request(target).endswith(BODY)


@pytest.mark.parametrize(
    ("reason", "failure", "status", "retry"),
    [
        pytest.param("model_not_found", None, 404, False, id="no such model"),
        pytest.param("endpoint_not_supported", None, 501, False, id="no such endpoint"),
        pytest.param("no_replica", None, 503, True, id="all are down"),
        pytest.param("busy", ("busy", "full"), 503, True, id="our own limit"),
        pytest.param("upstream_failed", ("connect", "no"), 502, True, id="no connection"),
        pytest.param("upstream_failed", ("timeout", "no"), 504, True, id="no answer"),
        pytest.param("upstream_failed", ("status", "no"), 502, True, id="unavailable"),
        pytest.param("upstream_failed", None, 503, True, id="forgotten"),
    ],
)
def test_what_a_refused_client_is_told(
    reason: RejectReason, failure: tuple[FailureKind, str] | None, status: int, retry: bool
) -> None:
    refusal = rejection(Reject(1, reason, 2.5), "m", failure)
    assert refusal.status == status
    assert refusal.code == reason
    assert (b"retry-after: 3\r\n" in refusal.head()) is retry


@pytest.mark.parametrize(
    ("tag", "headers", "sent"),
    [
        pytest.param(None, b"x-request-id: mine\r\n", b"mine", id="no tag: the client's"),
        pytest.param(None, b"x-request-id: req-ff\r\n", b"req-ff", id="no tag: ours"),
        pytest.param("01234567", b"x-request-id: req-ff\r\n", b"req-ff.01234567", id="ours"),
        pytest.param(
            "01234567", b"x-request-id: mine\r\n", b"mine.req-ff.01234567", id="behind the client's"
        ),
        pytest.param(
            "01234567",
            b"x-request-id: mine\r\nx-request-id: req-fe.01234567\r\ntracestate: y\r\n",
            b"mine.req-ff.01234567",
            id="behind the first of several",
        ),
    ],
)
def test_an_engine_is_told_the_request_by_name(
    tag: str | None, headers: bytes, sent: bytes
) -> None:
    target = Target(Upstream(name="a", url="http://engine", request_tag=tag))
    own = call()
    own.headers += headers
    lines = own.upstream_request(target).split(b"\r\n")
    assert [line[14:] for line in lines if line.startswith(b"x-request-id: ")] == [sent]
    assert b"traceparent: x" in lines
    assert (b"tracestate: y" in lines) == (b"tracestate" in headers)


@pytest.mark.parametrize(
    ("tag", "body", "named"),
    [
        pytest.param(None, b'{"input":"hi"}', None, id="no tag"),
        pytest.param("01234567", b' {"input":"hi"}', "resp_req-ff.01234567", id="ours"),
        pytest.param("01234567", b'{"request_id":"mine"}', "mine", id="the client's"),
    ],
)
def test_vllms_responses_are_named_in_the_body(
    tag: str | None, body: bytes, named: str | None
) -> None:
    target = Target(Upstream(name="a", url="http://engine", request_tag=tag))
    own = call()
    own.request = msgspec.structs.replace(own.request, endpoint="responses")
    sent = msgspec.json.decode(own.upstream_request(target, body).partition(b"\r\n\r\n")[2])
    assert sent.get("request_id") == named
