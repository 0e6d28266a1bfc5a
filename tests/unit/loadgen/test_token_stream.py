"""TokenStream: which events are tokens, when they came, and how a stream ended."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mileage.loadgen.token_stream import TokenStream


def event(value: dict[str, Any], end: bytes = b"\n\n") -> bytes:
    return b"data: " + msgspec.json.encode(value) + end


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


WORD = event(delta(content="word"))
USAGE: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        pytest.param(delta(role="assistant", content=""), 0, id="the role is no token"),
        pytest.param(delta(content="a"), 1, id="text is one"),
        pytest.param(delta(content=" "), 1, id="so is a space"),
        pytest.param(delta(reasoning_content="hm"), 1, id="reasoning is one"),
        pytest.param(delta(reasoning="hm"), 1, id="so it is by vLLM's newer name"),
        pytest.param(delta(content=None, tool_calls=[{"index": 0}]), 1, id="a tool call's part"),
        pytest.param(delta(tool_calls=[]), 0, id="an empty list of tool calls is none"),
        pytest.param(delta(refusal="no"), 1, id="a refusal's text is one"),
        pytest.param({"choices": [{"text": "a"}]}, 1, id="a completion's text is one"),
        pytest.param({"choices": [{"text": ""}]}, 0, id="a completion without text is none"),
        pytest.param(delta(finish="stop"), 0, id="the reason to finish alone is none"),
        pytest.param(delta(finish="length", content="z"), 1, id="with the last text it is one"),
        pytest.param(USAGE, 0, id="the usage is none"),
        pytest.param({"choices": None}, 0, id="no choices at all"),
        pytest.param(delta(content=["part"]), 1, id="text in parts, as no usual engine has it"),
        pytest.param({"choices": [3]}, 0, id="a choice that is none"),
    ],
)
def test_events_that_carry_text_are_tokens(value: dict[str, Any], tokens: int) -> None:
    stream = TokenStream()
    stream.feed(event(value), 1.0)
    assert list(stream.token_events) == ([1] if tokens else [])
    assert stream.complaint is None


def test_events_of_one_read_share_its_moment() -> None:
    stream = TokenStream()
    stream.feed(WORD * 3 + event(delta(role="assistant")), 1.0)
    stream.feed(WORD, 2.0)
    assert list(stream.token_times_s) == [1.0, 2.0]
    assert list(stream.token_events) == [3, 1]


def test_a_token_comes_when_its_event_is_whole() -> None:
    stream = TokenStream()
    stream.feed(WORD[:-1], 1.0)
    stream.feed(WORD[-1:], 2.0)
    assert list(stream.token_times_s) == [2.0]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_any_line_ends_will_do(end: bytes) -> None:
    stream = TokenStream()
    data = b"".join(event(delta(content="x"), end) for _ in range(3)) + b": ping" + end
    for byte in data:
        stream.feed(bytes([byte]), 1.0)
    assert sum(stream.token_events) == 3
    assert stream.complaint is None


def test_usage_is_read_from_the_last_event_that_tells_it() -> None:
    stream = TokenStream()
    early = delta(content="a") | {"usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    late = USAGE | {"usage": USAGE["usage"] | {"prompt_tokens_details": {"cached_tokens": 5}}}
    stream.feed(event(early) + event(late), 1.0)
    assert (stream.prompt_tokens, stream.output_tokens, stream.cached_tokens) == (7, 3, 5)
    assert list(stream.token_events) == [1]


def test_usage_without_details_leaves_them_unknown() -> None:
    stream = TokenStream()
    stream.feed(event(USAGE | {"usage": {"completion_tokens": -1, "prompt_tokens": None}}), 1.0)
    assert (stream.prompt_tokens, stream.output_tokens, stream.cached_tokens) == (None, None, None)


@pytest.mark.parametrize(
    ("data", "done", "finished"),
    [
        pytest.param(b"data: [DONE]\n\n", True, False, id="[DONE]"),
        pytest.param(event(delta(finish="stop")), False, True, id="a reason to finish"),
        pytest.param(WORD, False, False, id="neither"),
        pytest.param(b"data: [DONE]", True, False, id="[DONE] without its empty line"),
        pytest.param(b"data:[DONE]\n\n", True, False, id="[DONE] without the space"),
    ],
)
def test_the_end_is_known_by_done_or_by_a_reason(data: bytes, done: bool, finished: bool) -> None:
    stream = TokenStream()
    stream.feed(data, 1.0)
    stream.end(1.0)
    assert (stream.done, stream.finished) == (done, finished)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'data: {"error": {"message": "out of memory"}}\n\n', id="OpenAI's form"),
        pytest.param(b'data: {"object": "error", "message": "bad"}\n\n', id="vLLM's older form"),
        pytest.param(b'event: error\ndata: {"error": "bad"}\n\n', id="a named event"),
    ],
)
def test_an_error_event_is_kept_and_is_no_token(data: bytes) -> None:
    stream = TokenStream()
    stream.feed(data + b'data: {"error": "a later one"}\n\n', 1.0)
    assert stream.failure is not None
    assert b"later" not in stream.failure
    assert not stream.token_events


def test_an_error_that_is_null_is_none() -> None:
    stream = TokenStream()
    stream.feed(event(delta(content="a") | {"error": None}), 1.0)
    assert stream.failure is None
    assert list(stream.token_events) == [1]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"data: {broken\n\n", id="no JSON"),
        pytest.param(b"data: [1, 2]\n\n", id="no object"),
        pytest.param(b"data: \xff\xfe\n\n", id="no text"),
        pytest.param(b"data: " + b"[" * 200_000 + b"\n\n", id="nested without end"),
    ],
)
def test_an_event_that_cannot_be_read_is_complained_about(data: bytes) -> None:
    stream = TokenStream()
    stream.feed(WORD + data + WORD, 1.0)
    assert stream.complaint is not None
    assert "no JSON object" in stream.complaint
    assert list(stream.token_events) == [2]


def test_an_event_without_end_does_not_fill_memory() -> None:
    stream = TokenStream()
    for _ in range(64):
        stream.feed(b"data: " + b"x" * 16_384, 1.0)
    assert len(stream._cutter.rest) <= 256 * 1024 + 16_390
    assert stream.complaint is not None


@pytest.mark.parametrize("count", [-1, 2**31, 2**63, 10**30, 1e308, "7", True])
def test_a_count_of_tokens_that_cannot_be_is_none(count: Any) -> None:
    stream = TokenStream()
    stream.feed(
        event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": count}}), 1
    )
    assert stream.output_tokens is None
    assert stream.prompt_tokens == 7
