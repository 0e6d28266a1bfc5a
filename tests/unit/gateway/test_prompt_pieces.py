"""What of a prompt is looked at: all that an engine may show its model, in whichever field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.core.request import Endpoint
from mileage.gateway.bodies import parse_body
from mileage.gateway.prompt_counter import PromptCounter
from mileage.gateway.prompt_pieces import PromptPieces
from mileage.gateway.tokenizer_file import load_tokenizer
from tests.support.tokenizer_files import words_tokenizer

LONG = "abc " * 25_600
BASE64 = "iVBORw0KGgoAAAANSUhEUgAA" * 4266
NUMBERS = [*range(1000, 18_000)]
CALLED = {"type": "function", "function": {"name": "f", "arguments": LONG}}


def said(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [*parts], **fields}]}


def asked(*items: Any) -> dict[str, Any]:
    return {"input": [*items]}


PROMPTS = [
    pytest.param("chat", said(content=LONG), id="a text"),
    pytest.param("chat", said(name=LONG), id="a name"),
    pytest.param("chat", said(role=LONG), id="a role that is none"),
    pytest.param("chat", said(reasoning_content=LONG), id="reasoning_content"),
    pytest.param("chat", said(reasoning=LONG), id="reasoning"),
    pytest.param("chat", said(refusal=LONG), id="a refusal"),
    pytest.param("chat", said(tool_call_id=LONG), id="a long id"),
    pytest.param("chat", said(tool_calls=[CALLED]), id="arguments"),
    pytest.param(
        "chat",
        said(tool_calls=[{"function": {"arguments": {LONG: 1}}}]),
        id="arguments as an object: its names count",
    ),
    pytest.param("chat", said(function_call={"arguments": LONG}), id="a call of the old kind"),
    pytest.param(
        "chat", said(image_url=BASE64, type="text"), id="a text with an image is no image"
    ),
    pytest.param(
        "chat", said({"type": "file", "file": {"file_data": BASE64}}), id="a file in a message"
    ),
    pytest.param("chat", {**said("x"), "tools": [{"parameters": {"a": LONG}}]}, id="tools"),
    pytest.param("chat", {**said("x"), "documents": [{"text": LONG}]}, id="documents"),
    pytest.param(
        "chat", {**said("x"), "chat_template_kwargs": {"a": LONG}}, id="a template's variables"
    ),
    pytest.param("chat", {**said("x"), "chat_template": LONG}, id="a template"),
    pytest.param("chat", {**said("x"), "functions": [{"name": LONG}]}, id="functions"),
    pytest.param("chat", {**said("x"), "response_format": {"a": LONG}}, id="a format"),
    pytest.param("completions", {"prompt": LONG}, id="a prompt"),
    pytest.param("completions", {"prompt": "x", "suffix": LONG}, id="a suffix"),
    pytest.param("completions", {"prompt": [1, LONG]}, id="an id and a text"),
    pytest.param("completions", {"prompt": ["a", LONG]}, id="several prompts"),
    pytest.param("completions", {"prompt": ["a", NUMBERS]}, id="a text and token ids"),
    pytest.param("embeddings", {"input": ["a", LONG]}, id="to embed"),
    pytest.param("embeddings", {"input": "x", "messages": [{"content": LONG}]}, id="messages"),
    pytest.param("messages", {"system": LONG, **said("x")}, id="a system prompt"),
    pytest.param("messages", {"chat_template_kwargs": {"a": LONG}, **said("x")}, id="variables"),
    pytest.param("messages", {"output_config": {"format": LONG}, **said("x")}, id="its format"),
    pytest.param(
        "messages",
        {"system": [{"type": "text", "text": LONG}], **said("x")},
        id="a system of parts",
    ),
    pytest.param(
        "messages", said({"type": "tool_use", "input": {"a": {"b": [LONG]}}}), id="tool_use.input"
    ),
    pytest.param(
        "messages", said({"type": "tool_use", "input": {"a": NUMBERS}}), id="numbers of an input"
    ),
    pytest.param(
        "messages",
        said({"type": "tool_result", "content": [{"type": "text", "text": LONG}]}),
        id="tool_result",
    ),
    pytest.param(
        "messages",
        said({"type": "document", "source": {"type": "text", "data": LONG}}),
        id="a document's text",
    ),
    pytest.param(
        "messages",
        said({"type": "document", "source": {"type": "content", "content": [{"text": LONG}]}}),
        id="a document's parts",
    ),
    pytest.param(
        "messages",
        said({"type": "document", "source": {"type": "base64", "data": BASE64}}),
        id="a document's bytes",
    ),
    pytest.param("messages", said({"type": "document", "title": LONG}), id="a document's title"),
    pytest.param("messages", said({"type": "thinking", "thinking": LONG}), id="thinking"),
    pytest.param("messages", said({"type": "thinking", "signature": BASE64}), id="a signature"),
    pytest.param(
        "messages", said({"type": "redacted_thinking", "data": BASE64}), id="redacted thinking"
    ),
    pytest.param("responses", {"input": "x", "instructions": LONG}, id="instructions"),
    pytest.param("responses", {"input": "x", "text": {"format": LONG}}, id="format of a response"),
    pytest.param(
        "responses", {"input": "x", "previous_input_messages": [{"content": LONG}]}, id="previous"
    ),
    pytest.param("responses", {"input": "x", "prompt": {"variables": {"a": LONG}}}, id="a form"),
    pytest.param("responses", asked({"type": "function_call", "arguments": LONG}), id="a call"),
    pytest.param(
        "responses", asked({"type": "function_call_output", "output": LONG}), id="an output"
    ),
    pytest.param("responses", asked({"type": "custom_tool_call", "input": LONG}), id="an input"),
    pytest.param(
        "responses",
        asked({"type": "reasoning", "summary": [{"type": "summary_text", "text": LONG}]}),
        id="a summary of reasoning",
    ),
    pytest.param(
        "responses",
        asked({"type": "reasoning", "encrypted_content": BASE64}),
        id="sealed reasoning",
    ),
    pytest.param("responses", asked({"type": "search", "action": {"q": LONG}}), id="an action"),
]
COUNTED = {
    *("documents", "a template's variables", "an id and a text", "a suffix", "previous"),
    *("tool_use.input", "a document's text", "thinking", "reasoning_content"),
    *("a signature", "a call"),
}


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> PromptCounter:
    place = words_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")
    return PromptCounter(load_tokenizer("key", str(place)))


@pytest.mark.parametrize(("endpoint", "fields"), PROMPTS)
def test_nothing_that_costs_is_free(endpoint: Endpoint, fields: dict[str, Any]) -> None:
    raw = json.dumps({"model": "m", **fields}).encode()
    text_bytes = parse_body(endpoint, raw).text_bytes
    assert text_bytes > 100_000
    pieces = PromptPieces(endpoint, fields)
    looked_at = sum(map(len, pieces.texts)) + pieces.opaque_bytes
    assert looked_at > 0.8 * text_bytes


@pytest.mark.parametrize(
    ("endpoint", "fields"),
    [param for param in PROMPTS if param.id in COUNTED],
)
def test_a_count_is_of_all_of_it(
    counter: PromptCounter, endpoint: Endpoint, fields: dict[str, Any]
) -> None:
    raw = json.dumps({"model": "m", **fields}).encode()
    count = counter.count(endpoint, raw)
    assert count is not None
    assert count >= len(raw) / 8


@pytest.mark.parametrize(
    "part",
    [
        pytest.param({"type": "image_url", "image_url": {"url": BASE64}}, id="image_url"),
        pytest.param({"image_url": BASE64}, id="an image without a type"),
        pytest.param({"type": "image", "source": {"type": "base64", "data": BASE64}}, id="source"),
        pytest.param({"type": "input_audio", "input_audio": {"data": BASE64}}, id="audio"),
        pytest.param({"type": "video_url", "video_url": {"url": BASE64}}, id="video"),
        pytest.param(
            {"type": "tool_result", "content": [{"type": "image", "source": {"data": BASE64}}]},
            id="what a tool saw",
        ),
    ],
)
def test_media_weigh_by_their_size_and_not_as_text(part: dict[str, Any]) -> None:
    pieces = PromptPieces("messages", said({"type": "text", "text": "a b"}, part))
    assert (pieces.texts, pieces.opaque_bytes) == (["a b"], 0)


def test_embeddings_in_place_of_a_prompt_weigh_a_token_each_2_kib() -> None:
    fields = {"prompt": "x", "prompt_embeds": [BASE64, BASE64]}
    pieces = PromptPieces("completions", fields)
    assert pieces.opaque_bytes == 2 * len(BASE64) // 512
    assert PromptPieces("completions", {"prompt_embeds": BASE64}).opaque_bytes == len(BASE64) // 512
    raw = json.dumps({"model": "m", **fields}).encode()
    assert parse_body("completions", raw).text_bytes == 3 + pieces.opaque_bytes


def test_labels_are_not_text() -> None:
    part = {
        "type": "tool_result",
        "tool_use_id": "toolu_01",
        "content": "a b",
        "is_error": True,
        "cache_control": {"type": "ephemeral", "ttl": "5m"},
    }
    assert PromptPieces("messages", said(part)).texts == ["a b"]


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.none() | st.text(max_size=5) | st.integers(-5, 5) | st.booleans(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(("type", "content", "source", "data", "image_url", "x")), inner
            )
        ),
    )
)
def test_no_shape_of_messages_raises(messages: Any) -> None:
    PromptPieces("messages", {"messages": messages, "system": messages, "tools": messages})


def test_what_is_nested_deeply_is_looked_at_as_a_whole() -> None:
    nested: Any = "word"
    for _ in range(40):
        nested = {"content": [nested]}
    assert "word" in PromptPieces("messages", said(nested)).texts[0]
