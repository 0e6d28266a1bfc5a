"""The text of a prompt, as the model reads it; nothing that a body holds raises."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.core.request import Endpoint
from mileage.gateway.prompt_sample import CREDIT_S, SHARE, PromptSample
from mileage.gateway.prompt_text import prompt_text

LONG = " ".join(f"word{n}" for n in range(60))


@pytest.mark.parametrize(
    ("endpoint", "body", "text"),
    [
        pytest.param("completions", {"prompt": "a b"}, "a b", id="a text"),
        pytest.param("completions", {"prompt": ["a", "b"]}, "a\nb", id="several texts"),
        pytest.param("completions", {"prompt": [1, 2]}, "", id="tokens have no text"),
        pytest.param(
            "chat",
            {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]},
            "s\nu",
            id="messages in order",
        ),
        pytest.param(
            "chat",
            {"messages": [{"content": [{"type": "text", "text": "t"}, {"type": "image_url"}]}]},
            "t",
            id="parts, media left out",
        ),
        pytest.param(
            "messages",
            {"messages": [{"content": "u"}], "system": "s"},
            "s\nu",
            id="the system prompt is read first",
        ),
        pytest.param("responses", {"input": "i", "instructions": "s"}, "s\ni", id="responses"),
        pytest.param("embeddings", {"input": "i"}, None, id="no prompt"),
    ],
)
def test_prompt_text(endpoint: Endpoint, body: dict[str, Any], text: str | None) -> None:
    assert prompt_text(endpoint, json.dumps(body).encode()) == text


@given(st.binary(max_size=200))
def test_no_body_raises(body: bytes) -> None:
    prompt_text("chat", body)


@given(
    st.recursive(
        st.none() | st.text(max_size=5) | st.integers(-5, 5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    )
)
def test_no_shape_of_messages_raises(messages: Any) -> None:
    prompt_text("chat", json.dumps({"messages": messages}).encode())


def test_a_large_body_is_not_looked_at() -> None:
    assert prompt_text("completions", json.dumps({"prompt": "x" * 300_000}).encode()) is None


def test_looking_takes_its_share_of_the_time_and_no_more() -> None:
    ticks = count(0.0, 0.001)  # each look takes a millisecond
    sample = PromptSample(clock=lambda: next(ticks))
    body = json.dumps({"prompt": LONG}).encode()
    times_s = [0.0] * 50 + [10.0 + n / 1000 for n in range(10_000)]
    looked: list[int] = []
    for now_s in times_s:
        sample.offer("completions", body, now_s)
        found = sample.summary()
        looked.append(0 if found is None else found.prompts + 1)
    # What a quiet time has earned at once, then five in each second.
    assert looked[49] == pytest.approx(CREDIT_S * SHARE / 0.001, abs=1)
    assert looked[-1] - looked[49] == pytest.approx((CREDIT_S + 10.0) * SHARE / 0.001, abs=2)
