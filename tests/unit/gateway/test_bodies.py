"""Request bodies: what is refused, naming the field; and what the engine gets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mileage.core.request import Endpoint
from mileage.gateway.bodies import parse_body, upstream_body
from mileage.gateway.refusals import Refusal

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def encoded(fields: dict[str, Any], **more: Any) -> bytes:
    return msgspec.json.encode(fields | more)


@pytest.mark.parametrize(
    ("endpoint", "body", "param", "part"),
    [
        pytest.param("chat", b"", None, "no body", id="empty"),
        pytest.param("chat", b"{", None, "not valid JSON", id="half JSON"),
        pytest.param("chat", b"[]", None, "object", id="no object"),
        pytest.param("chat", b'{"model":"m\xff","messages":[1]}', None, "UTF-8", id="bad UTF-8"),
        pytest.param(
            "chat", encoded(CHAT)[:-1] + b',"x":"\xff"}', None, "UTF-8", id="bad UTF-8 unseen"
        ),
        pytest.param(
            "chat", encoded(CHAT)[:-1] + b',"x":' + b"[" * 10**5, None, "deep", id="deep nesting"
        ),
        pytest.param("chat", encoded({"messages": [1]}), "model", "missing", id="no model"),
        pytest.param("chat", encoded(CHAT, model=3), "model", "str", id="model is a number"),
        pytest.param("chat", encoded(CHAT, model=""), "model", "length", id="model is empty"),
        pytest.param(
            "chat", encoded(CHAT, model="m" * 513), "model", "length", id="model is endless"
        ),
        pytest.param("chat", encoded({"model": "m"}), "messages", "missing", id="no messages"),
        pytest.param("chat", encoded(CHAT, messages="hi"), "messages", "list", id="text messages"),
        pytest.param("chat", encoded(CHAT, messages=[]), "messages", "empty", id="none messages"),
        pytest.param(
            "chat", b'{"model":"m","messages":[  \n ]}', "messages", "empty", id="blank messages"
        ),
        pytest.param("chat", encoded(CHAT, messages=None), "messages", "list", id="null messages"),
        pytest.param("chat", encoded(CHAT, max_tokens=-5), "max_tokens", ">= 1", id="negative"),
        pytest.param("chat", encoded(CHAT, max_tokens=0), "max_tokens", ">= 1", id="zero"),
        pytest.param("chat", encoded(CHAT, max_tokens=10**12), "max_tokens", "<=", id="huge"),
        pytest.param("chat", encoded(CHAT, max_tokens=10**30), "max_tokens", "", id="beyond int64"),
        pytest.param("chat", encoded(CHAT, max_tokens="5"), "max_tokens", "int", id="text number"),
        pytest.param("chat", encoded(CHAT, max_tokens=1.5), "max_tokens", "int", id="fraction"),
        pytest.param(
            "chat",
            encoded(CHAT, max_completion_tokens=-1),
            "max_completion_tokens",
            ">= 1",
            id="negative completion",
        ),
        pytest.param("chat", encoded(CHAT, stream="yes"), "stream", "bool", id="stream is text"),
        pytest.param(
            "chat",
            encoded(CHAT, stream_options={"include_usage": 1}),
            "stream_options.include_usage",
            "bool",
            id="nested field",
        ),
        pytest.param("chat", encoded(CHAT, n=0), "n", ">= 1", id="no choices"),
        pytest.param("chat", encoded(CHAT, temperature=-1), "temperature", ">= 0", id="cold"),
        pytest.param("chat", encoded(CHAT, top_p=2), "top_p", "<= 1", id="improbable"),
        pytest.param(
            "completions", encoded({"model": "m", "prompt": 3}), "prompt", "string", id="prompt"
        ),
        pytest.param("embeddings", encoded({"model": "m"}), "input", "missing", id="no input"),
        pytest.param(
            "embeddings", encoded({"model": "m", "input": []}), "input", "empty", id="no inputs"
        ),
        pytest.param(
            "responses",
            encoded({"model": "m", "input": "a", "max_output_tokens": 0}),
            "max_output_tokens",
            ">= 1",
            id="responses",
        ),
        pytest.param(
            "messages", encoded(CHAT, max_tokens=-1), "max_tokens", ">= 1", id="Anthropic"
        ),
    ],
)
def test_a_bad_body_is_refused(
    endpoint: Endpoint, body: bytes, param: str | None, part: str
) -> None:
    with pytest.raises(Refusal) as refusal:
        parse_body(endpoint, body)
    assert refusal.value.status == 400
    assert refusal.value.param == param
    assert part in refusal.value.message


def test_unknown_fields_and_nulls_are_the_engines_business() -> None:
    body = parse_body(
        "chat", encoded(CHAT, chat_template_kwargs={"a": 1}, max_tokens=None, stream=None, n=None)
    )
    assert not body.stream
    assert body.output_tokens_max is None
    assert body.usage_asked is None


def test_what_is_known_of_a_body() -> None:
    body = parse_body(
        "chat",
        encoded(
            CHAT,
            stream=True,
            max_tokens=5,
            max_completion_tokens=7,
            stream_options={"include_usage": True},
        ),
    )
    assert body.stream
    assert body.usage_asked
    assert body.output_tokens_max == 7
    assert body.text_bytes == len(msgspec.json.encode(CHAT["messages"]))


def test_prompts_that_begin_alike_have_the_same_prefix() -> None:
    system = {"role": "system", "content": "s" * 2000}
    one = parse_body("chat", encoded(CHAT, messages=[system, {"role": "user", "content": "a"}]))
    two = parse_body("chat", encoded(CHAT, messages=[system, {"role": "user", "content": "b"}]))
    other = parse_body("chat", encoded(CHAT, messages=[{"role": "user", "content": "c"}]))
    assert bytes(one.prefix) == bytes(two.prefix) != bytes(other.prefix)


@pytest.mark.parametrize(
    ("fields", "model", "ask_usage", "changes"),
    [
        pytest.param({}, "m", False, {}, id="nothing to change"),
        pytest.param({}, "real", False, {"model": "real"}, id="alias"),
        pytest.param({}, "m", True, {"stream_options": {"include_usage": True}}, id="ask usage"),
        pytest.param(
            {"stream_options": {"include_usage": False, "x": 1}},
            "m",
            True,
            {"stream_options": {"include_usage": True, "x": 1}},
            id="usage declined by the client",
        ),
        pytest.param(
            {"stream_options": None},
            "m",
            True,
            {"stream_options": {"include_usage": True}},
            id="null options",
        ),
        pytest.param(
            {"stream_options": {"include_usage": True}}, "m", True, {}, id="asked by the client"
        ),
        pytest.param(
            {"stream_options": {"include_usage": True}},
            "real",
            True,
            {"model": "real"},
            id="asked by the client, under an alias",
        ),
        pytest.param(
            {"messages": [{"role": "user", "content": '"stream_options"'}]},
            "m",
            True,
            {"stream_options": {"include_usage": True}},
            id="a prompt that mentions the option",
        ),
    ],
)
def test_the_engines_body_differs_only_where_it_must(
    fields: dict[str, Any], model: str, ask_usage: bool, changes: dict[str, Any]
) -> None:
    sent = CHAT | {"stream": True, "seed": 2**53, "extra": {"ü": [1.5, None]}} | fields
    raw = msgspec.json.encode(sent)
    got = upstream_body(raw, parse_body("chat", raw), model=model, ask_usage=ask_usage)
    assert msgspec.json.decode(got) == sent | changes
    if not changes:
        assert got is raw
