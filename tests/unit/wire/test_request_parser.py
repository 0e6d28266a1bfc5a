"""Requests from bytes: what is a request, and what is refused."""

from __future__ import annotations

import msgspec
import pytest

from mileage.wire.message import HttpRequest
from mileage.wire.request_parser import Refused, RequestParser


class Limits(msgspec.Struct, frozen=True):
    headers_max: int = 8
    header_bytes_max: int = 1024
    body_bytes_max: int = 64


class Collector:
    """A receiver that keeps all that it is told."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []
        self.heads = 0
        self.held_bytes = 0

    def head_received(self) -> None:
        self.heads += 1

    def body_held(self, size: int) -> None:
        self.held_bytes += size

    def request_received(self, request: HttpRequest) -> None:
        self.requests.append(request)


def parse(*parts: bytes) -> Collector:
    collector = Collector()
    parser = RequestParser(Limits(), collector)
    for part in parts:
        parser.feed(part)
    return collector


POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"


def test_a_request_is_received_whole() -> None:
    (request,) = parse(POST + b"Content-Length: 5\r\nX-A: b\r\n\r\nhello").requests
    assert (request.method, request.target, request.version) == (
        b"POST",
        b"/v1/chat/completions",
        "1.1",
    )
    assert request.body == b"hello"
    assert request.header(b"x-a") == b"b"
    assert request.header(b"absent") is None
    assert request.keep_alive


def test_a_request_may_come_byte_by_byte() -> None:
    data = POST + b"Content-Length: 5\r\n\r\nhello"
    (request,) = parse(*(data[i : i + 1] for i in range(len(data)))).requests
    assert request.body == b"hello"
    assert request.target == b"/v1/chat/completions"


def test_pipelined_requests_come_in_order() -> None:
    one = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
    two = POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: t\r\n\r\n"
    requests = parse(one + two + one).requests
    assert [r.target for r in requests] == [b"/a", b"/v1/chat/completions", b"/a"]
    assert requests[1].body == b"abcde"
    assert requests[1].header(b"t") is None, "a trailer is no header"


def test_http_1_0_closes_unless_asked_not_to() -> None:
    closing, kept = (
        parse(b"GET / HTTP/1.0\r\n\r\n").requests
        + parse(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").requests
    )
    assert not closing.keep_alive
    assert kept.keep_alive


def test_an_offer_to_upgrade_is_ignored_and_the_body_is_kept() -> None:
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
    data = POST + offer + b"Content-Length: 5\r\n\r\nhello" + b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n"
    first, second = parse(data).requests
    assert first.body == b"hello"
    assert second.target == b"/b"
    cut = data.index(b"hello") + 2
    first, second = parse(data[:cut], data[cut:]).requests
    assert first.body == b"hello"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"\x16\x03\x01\x02\x00", 400, id="TLS on a plain port"),
        pytest.param(b"GET / HTTP/1.1\nHost: a\n\n", 400, id="bare line feeds"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", 400, id="no Host"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, id="two Hosts"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400, id="folded header"),
        pytest.param(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400, id="space before the colon"),
        pytest.param(b"FROB / HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="unknown method"),
        pytest.param(b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405, id="CONNECT"),
        pytest.param(
            POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            id="length and chunked",
        ),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
            400,
            id="chunked and length",
        ),
        pytest.param(
            POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400, id="two lengths"
        ),
        pytest.param(POST + b"Content-Length: -1\r\n\r\n", 400, id="negative length"),
        pytest.param(POST + b"Content-Length: 1e3\r\n\r\n", 400, id="length in no decimal"),
        pytest.param(POST + b"Transfer-Encoding: gzip\r\n\r\n", 400, id="unknown coding"),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, id="chunk size in no hex"
        ),
        pytest.param(POST + b"Content-Length: 65\r\n\r\n", 413, id="body announced too large"),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\n\r\n41\r\n" + b"a" * 65 + b"\r\n",
            413,
            id="chunked body too large",
        ),
        pytest.param(POST + b"X: " + b"a" * 2000, 431, id="one endless header"),
        pytest.param(b"GET /" + b"a" * 2000, 431, id="endless target"),
        pytest.param(POST + b"A: b\r\n" * 9 + b"\r\n", 431, id="too many headers"),
        pytest.param(POST + b"Expect: a-miracle\r\n\r\n", 417, id="unknown expectation"),
    ],
)
def test_what_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(Refused) as refused:
        parse(data)
    assert refused.value.status == status
    assert refused.value.message


def test_a_body_at_the_limit_is_taken() -> None:
    (request,) = parse(POST + b"Content-Length: 64\r\n\r\n" + b"a" * 64).requests
    assert len(request.body) == 64


def test_header_bytes_are_counted_for_each_request_anew() -> None:
    data = POST + b"X: " + b"a" * 700 + b"\r\nContent-Length: 0\r\n\r\n"
    collector = Collector()
    parser = RequestParser(Limits(), collector)
    for _ in range(5):
        parser.feed(data[:500])
        parser.feed(data[500:])
    assert len(collector.requests) == 5


def test_continue_is_wanted_until_the_body_comes() -> None:
    collector = Collector()
    parser = RequestParser(Limits(), collector)
    parser.feed(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    wanted = [parser.want_continue]
    assert collector.heads == 1
    parser.feed(b"hi")
    wanted.append(parser.want_continue)
    assert wanted == [True, False]
    assert collector.requests[0].body == b"hi"


def test_a_pipeline_of_offers_to_upgrade_is_served() -> None:
    offer = b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert len(parse(offer * 3000).requests) == 3000


@pytest.mark.parametrize(
    ("head", "status"),
    [
        pytest.param(b"Host: a\r\nContent-Length: 999\r\n", 413, id="body above the limit"),
        pytest.param(b"Host: a\r\nExpect: more\r\n", 417, id="unknown expectation"),
        pytest.param(b"", 400, id="no host"),
    ],
)
def test_an_offer_to_upgrade_is_checked_as_any_request(head: bytes, status: int) -> None:
    with pytest.raises(Refused) as refused:
        parse(b"POST / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n" + head + b"\r\n")
    assert refused.value.status == status


def test_an_offer_to_upgrade_from_http_1_0_stays_http_1_0() -> None:
    offer = b"GET /a HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    (request,) = parse(offer).requests
    assert (request.version, request.keep_alive) == ("1.0", False)


@pytest.mark.parametrize("where", ["target", "header"])
def test_a_head_above_the_limit_is_refused_also_when_it_comes_at_once(where: str) -> None:
    target, value = (b"a" * 1100, b"") if where == "target" else (b"", b"a" * 1100)
    with pytest.raises(Refused) as refused:
        parse(b"GET /%b HTTP/1.1\r\nHost: a\r\nX: %b\r\n\r\n" % (target, value))
    assert refused.value.status == 431
