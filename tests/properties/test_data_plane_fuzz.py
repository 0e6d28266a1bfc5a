"""Parsers of the data plane: whatever the bytes, no crash; however they are cut, the same."""

from __future__ import annotations

from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mileage.core.request import Endpoint
from mileage.gateway.bodies import parse_body, upstream_body
from mileage.gateway.refusals import Refusal, engine_error
from mileage.gateway.stream import StreamMeter
from mileage.wire.message import HttpRequest
from mileage.wire.request_parser import Refused, RequestParser
from mileage.wire.sse import EventCutter

ENDPOINTS: list[Endpoint] = ["chat", "completions", "embeddings", "responses", "messages"]

http_pieces = st.sampled_from(
    [
        b"GET ", b"POST ", b"/", b"/v1/chat/completions", b" HTTP/1.1\r\n", b" HTTP/1.0\r\n",
        b"Host: a\r\n", b"Content-Length: 3\r\n", b"Content-Length: 0\r\n", b"\r\n", b"abc",
        b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n", b"Upgrade: h2c\r\n",
        b"Connection: Upgrade\r\n", b"Connection: close\r\n", b"Expect: 100-continue\r\n", b":",
        b"\n", b"\x00",
    ]
)  # fmt: skip
http_bytes = st.lists(st.one_of(http_pieces, st.binary(max_size=6)), max_size=40).map(b"".join)
sse_pieces = st.sampled_from(
    [
        b"data: ", b"data:", b"[DONE]", b"\n\n", b"\n", b"\r\n\r\n", b"\r", b": ping\n\n",
        b"event: x\n",
        b'{"choices":[{"delta":{"content":"a"}}]}', b'{"choices":[],"usage":{"prompt_tokens":1}}',
        b'"content":"', b'"usage":{',
        b'{"error":{}}', b'{"choices":null}', b'{"choices":[{}]}', b"{", b'"', b"\xff",
    ]
)  # fmt: skip
sse_bytes = st.lists(st.one_of(sse_pieces, st.binary(max_size=4)), max_size=60).map(b"".join)
cuts = st.lists(st.integers(0, 400), max_size=8)


class Limits(msgspec.Struct, frozen=True):
    headers_max: int = 6
    header_bytes_max: int = 1024
    body_bytes_max: int = 32


class Collector:
    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []

    def head_received(self) -> None: ...

    def body_held(self, size: int) -> None: ...

    def request_received(self, request: HttpRequest) -> None:
        self.requests.append(request)


def split(data: bytes, at: list[int]) -> list[bytes]:
    points = [0, *sorted(min(p, len(data)) for p in at), len(data)]
    return [data[a:b] for a, b in pairwise(points) if a < b]


def requests_of(parts: list[bytes]) -> tuple[list[tuple[bytes, bytes, bytes]], int | None]:
    collector = Collector()
    parser = RequestParser(Limits(), collector)
    refused = None
    try:
        for part in parts:
            parser.feed(part)
    except Refused as error:
        refused = error.status
    return [(r.method, r.target, r.body) for r in collector.requests], refused


@given(data=http_bytes, at=cuts)
def test_requests_do_not_depend_on_how_their_bytes_are_cut(data: bytes, at: list[int]) -> None:
    whole, refused = requests_of([data])
    cut, cut_refused = requests_of(split(data, at))
    assert cut == whole
    if refused is not None and refused != 431:
        assert cut_refused is not None


@given(data=sse_bytes, at=cuts)
def test_events_do_not_depend_on_how_their_bytes_are_cut(data: bytes, at: list[int]) -> None:
    cutter = EventCutter()
    out = b"".join(cutter.cut(part) for part in split(data, at))
    assert out + cutter.rest == data


@given(data=sse_bytes, at=cuts, endpoint=st.sampled_from(ENDPOINTS), hide=st.booleans())
def test_a_meter_passes_every_stream_on(
    data: bytes, at: list[int], endpoint: Endpoint, hide: bool
) -> None:
    meter = StreamMeter(endpoint, hide_usage=hide)
    out = b"".join(meter.take(part, 0.0) for part in split(data, at)) + meter.rest()
    if not hide:
        assert out == data
    assert len(out) <= len(data)
    assert 0 <= meter.events <= len(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=12,
)
field_names = st.sampled_from(
    ["model", "messages", "prompt", "input", "stream", "stream_options", "max_tokens", "n", "x"]
)
bodies = st.one_of(
    st.binary(max_size=60),
    st.dictionaries(field_names, json_values, max_size=6).map(msgspec.json.encode),
)


@given(body=bodies, endpoint=st.sampled_from(ENDPOINTS))
def test_any_body_is_understood_or_refused(body: bytes, endpoint: Endpoint) -> None:
    try:
        parsed = parse_body(endpoint, body)
    except Refusal:
        return  # anything else that is raised fails the test
    sent = msgspec.json.decode(upstream_body(body, parsed, model="other", ask_usage=True))
    original = msgspec.json.decode(body)
    assert sent["model"] == "other"
    assert {k: v for k, v in sent.items() if k not in ("model", "stream_options")} == {
        k: v for k, v in original.items() if k not in ("model", "stream_options")
    }


@given(body=st.binary(max_size=60), endpoint=st.sampled_from(ENDPOINTS))
def test_any_engine_error_becomes_json(body: bytes, endpoint: Endpoint) -> None:
    assert isinstance(msgspec.json.decode(engine_error(400, body, endpoint)), dict)
