"""Streams: tokens are counted and timed, and only usage that nobody asked for is left out."""

from __future__ import annotations

import pytest

from mileage.core.request import Endpoint
from mileage.gateway.stream import StreamMeter

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":" a"}}]}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


def meter(
    *parts: bytes, endpoint: Endpoint = "chat", hide: bool = True
) -> tuple[StreamMeter, bytes]:
    stream = StreamMeter(endpoint, hide_usage=hide)
    out = b"".join(stream.take(part, float(at)) for at, part in enumerate(parts))
    return stream, out + stream.rest()


def test_only_what_was_generated_is_a_token() -> None:
    stream, out = meter(ROLE, PING, TOKEN, TOKEN, TOKEN, FINISH, USAGE, DONE)
    assert stream.events == 3
    assert out == ROLE + PING + TOKEN * 3 + FINISH + DONE
    times = stream.clock.summary()
    assert (times.first_s, times.last_s) == (2.0, 4.0)
    assert (stream.usage.prompt_tokens, stream.usage.output_tokens) == (7, 3)


def test_usage_that_was_asked_for_stays() -> None:
    stream, out = meter(ROLE + TOKEN, USAGE + DONE, hide=False)
    assert out == ROLE + TOKEN + USAGE + DONE
    assert stream.usage.output_tokens == 3


@pytest.mark.parametrize("tokens", [1, 4, 5, 6, 7, 8, 9, 128, 1000])
def test_a_burst_is_counted_like_single_events(tokens: int) -> None:
    stream, out = meter(ROLE + TOKEN * tokens + FINISH + USAGE + DONE)
    assert stream.events == tokens
    assert out == ROLE + TOKEN * tokens + FINISH + DONE
    assert stream.usage.output_tokens == 3


def test_pings_in_the_middle_of_a_burst_are_no_tokens() -> None:
    stream, out = meter(ROLE + TOKEN * 20 + PING + TOKEN * 20 + PING + TOKEN * 20 + DONE)
    assert stream.events == 60
    assert out.count(PING) == 2


@pytest.mark.parametrize("together", [False, True], ids=["alone", "in one read"])
def test_pings_with_other_line_ends_delay_no_token(together: bool) -> None:
    stream = StreamMeter("chat", hide_usage=True)
    ping = b": ping\r\n\r\n"
    parts = [ping + TOKEN, TOKEN + ping] if together else [ping, TOKEN, ping, TOKEN]
    for at, part in enumerate(parts):
        assert stream.take(part, float(at)) == part
    assert stream.events == 2
    assert stream.take(FINISH + USAGE + DONE, 9.0) == FINISH + DONE
    assert stream.ended


def test_bytes_may_be_cut_anywhere() -> None:
    whole = ROLE + TOKEN * 3 + FINISH + USAGE + DONE
    expected, out = meter(whole)
    for size in (1, 2, 3, 7, 64):
        stream, cut = meter(*(whole[i : i + size] for i in range(0, len(whole), size)))
        assert cut == out
        assert stream.events == expected.events
        assert stream.usage.output_tokens == 3


def test_the_beginning_of_an_event_that_never_ends_is_held_back() -> None:
    stream = StreamMeter("chat", hide_usage=True)
    assert stream.take(TOKEN + TOKEN[:20], 0.0) == TOKEN
    assert stream.rest() == TOKEN[:20]
    assert stream.rest() == b""


@pytest.mark.parametrize(
    ("event", "tokens"),
    [
        pytest.param(b'{"choices":[{"delta":{"reasoning_content":"x"}}]}', 1, id="reasoning"),
        pytest.param(b'{"choices":[{"delta":{"reasoning":"x"}}]}', 1, id="reasoning, new name"),
        pytest.param(b'{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}', 1, id="tool call"),
        pytest.param(b'{"choices":[{"delta":{"content":"\\"usage\\":{"}}]}', 1, id="text on usage"),
        pytest.param(b'{"choices":[{"delta": {"content": "a"}}]}', 1, id="spaces"),
        pytest.param(b'{"choices":[{"delta":{"content":"', 1, id="cut inside the text"),
        pytest.param(b'{"choices":[{"text":" a"}]}', 1, id="completion"),
        pytest.param(b'{"choices":[{"text":""}]}', 0, id="empty completion"),
        pytest.param(b'{"choices":[{"delta":{"content":null}}]}', 0, id="null"),
        pytest.param(b'{"prompt_filter_results":[]}', 0, id="no choices"),
        pytest.param(b"what is this", 1, id="not decodable: passed on, counted"),
    ],
)
def test_kinds_of_events(event: bytes, tokens: int) -> None:
    data = b"data: " + event + b"\n\n"
    stream, out = meter(data)
    assert stream.events == tokens
    assert out == data


def test_an_engines_error_event_is_noticed_and_passed_on() -> None:
    error = b'data: {"error":{"message":"boom"}}\n\n'
    stream, out = meter(TOKEN + error)
    assert stream.failed
    assert out == TOKEN + error


def test_usage_inside_the_last_choice_is_taken_and_passed_on() -> None:
    last = b'data: {"choices":[{"text":""}],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n'
    stream, out = meter(last)
    assert out == last
    assert stream.usage.prompt_tokens == 7


def test_usage_per_choice_is_added_up() -> None:
    stream, _ = meter(TOKEN * 6 + USAGE + USAGE + DONE)
    assert stream.usage.output_tokens == 6
    assert stream.usage.prompt_tokens == 7


def test_continuous_usage_is_not_added_up() -> None:
    events = [
        b'data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":7,'
        b'"completion_tokens":%d}}\n\n' % count
        for count in (1, 2, 3)
    ]
    stream, _ = meter(*events, USAGE, hide=False)
    assert stream.usage.output_tokens == 3


def test_responses_stream() -> None:
    def event(kind: str, more: str = "") -> bytes:
        return f'event: {kind}\ndata: {{"type":"{kind}"{more}}}\n\n'.encode()

    usage = ',"response":{"usage":{"input_tokens":7,"output_tokens":2}}'
    whole = (
        event("response.created")
        + event("response.output_text.delta") * 20
        + event("response.completed", usage)
    )
    stream, out = meter(whole, endpoint="responses")
    assert out == whole
    assert stream.events == 20
    assert (stream.usage.prompt_tokens, stream.usage.output_tokens) == (7, 2)


def test_messages_stream() -> None:
    start = (
        b'event: message_start\ndata: {"type":"message_start","message":{"usage":'
        b'{"input_tokens":7,"cache_read_input_tokens":4,"output_tokens":1}}}\n\n'
    )
    delta = b'event: content_block_delta\ndata: {"type":"content_block_delta"}\n\n'
    end = b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":2}}\n\n'
    stream, out = meter(start, delta, delta, end, endpoint="messages")
    assert out == start + delta * 2 + end
    assert stream.events == 2
    usage = stream.usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens) == (11, 4, 2)
