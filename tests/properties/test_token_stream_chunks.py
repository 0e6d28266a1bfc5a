"""A token stream says the same, however its bytes come."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mileage.loadgen.token_stream import TokenStream

TEXT = st.text(max_size=12)
DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "role": st.just("assistant"),
        "content": st.none() | TEXT,
        "reasoning_content": TEXT,
        "tool_calls": st.lists(st.just({"index": 0}), max_size=2),
    },
)
CHOICES = st.fixed_dictionaries(
    {"delta": DELTAS}, optional={"finish_reason": st.none() | st.just("stop")}
)
USAGES = st.fixed_dictionaries({"prompt_tokens": st.integers(0, 99)})
EVENTS = st.fixed_dictionaries(
    {"choices": st.lists(CHOICES, max_size=2)},
    optional={"usage": st.none() | USAGES, "error": st.none()},
)


def carries_text(event: dict[str, Any]) -> bool:
    """By definition, on the decoded value."""
    deltas = [choice["delta"] for choice in event["choices"]]
    names = ("content", "reasoning_content", "tool_calls")
    return any(delta.get(name) for delta in deltas for name in names)


@given(
    events=st.lists(EVENTS, max_size=8),
    end=st.sampled_from([b"\n\n", b"\r\n\r\n"]),
    space=st.sampled_from([b" ", b""]),
    ping=st.booleans(),
    cuts=st.lists(st.integers(0, 4000), max_size=12),
)
def test_any_chunking_gives_the_same(
    events: list[dict[str, Any]], end: bytes, space: bytes, ping: bool, cuts: list[int]
) -> None:
    parts = [b"data:" + space + msgspec.json.encode(event) + end for event in events]
    if ping:
        parts.insert(len(parts) // 2, b": ping" + end)
    data = b"".join(parts) + b"data: [DONE]" + end
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    stream = TokenStream()
    for number, (first, last) in enumerate(pairwise(places)):
        if first < last:
            stream.feed(data[first:last], float(number))
    stream.end(99.0)
    usages = [event["usage"]["prompt_tokens"] for event in events if event.get("usage")]
    assert sum(stream.token_events) == sum(map(carries_text, events))
    assert len(stream.token_events) == len(stream.token_times_s) <= len(places)
    assert list(stream.token_times_s) == sorted(stream.token_times_s)
    assert stream.done
    assert stream.finished == any(c.get("finish_reason") for e in events for c in e["choices"])
    assert stream.prompt_tokens == (usages[-1] if usages else None)
    assert stream.complaint is None
    assert stream.failure is None


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_no_bytes_break_it(parts: list[bytes]) -> None:
    stream = TokenStream()
    for part in parts:
        stream.feed(part, 0.0)
    stream.end(1.0)
    assert len(stream.token_events) == len(stream.token_times_s)
