"""Merge keys: what makes two requests the same, and which never share."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mileage.core.request import Endpoint
from mileage.gateway.bodies import parse_body
from mileage.gateway.merge_keys import NO_KEYS, MergeKeys, merge_keys
from mileage.gateway.refusals import Refusal
from mileage.policy.merging import MergingConfig

CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "hello"}],
    "temperature": 0,
}
EMBED: dict[str, Any] = {"model": "m", "input": "hello"}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"a": 1, "b": 2}}}


def keys(
    endpoint: Endpoint,
    raw: bytes | dict[str, Any],
    config: MergingConfig = MergingConfig(),  # noqa: B008 -- frozen
    **changes: Any,
) -> MergeKeys:
    raw = raw if isinstance(raw, bytes) else msgspec.json.encode(raw)
    return merge_keys(endpoint, raw, parse_body(endpoint, raw), config, **{"model": "m", **changes})


def chat(**fields: Any) -> MergeKeys:
    return keys("chat", CHAT | fields)


def embed(**fields: Any) -> MergeKeys:
    return keys("embeddings", EMBED | fields)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(
            b'{"temperature":0,"messages":[{"content":"hello","role":"user"}],"model":"m"}',
            id="the order of fields",
        ),
        pytest.param(
            b' { "model" : "m",\n"messages" : [ {"role": "user", "content": "hello"} ] ,'
            b'"temperature" : 0 }',
            id="white space",
        ),
        pytest.param(
            b'{"model":"m","messages":[{"role":"user","content":"\\u0068ell\\u006f"}],'
            b'"temperature":0}',
            id="escapes",
        ),
        pytest.param(msgspec.json.encode(CHAT | {"temperature": 0.0}), id="the form of a number"),
        pytest.param(
            b'{"model":"m","messages":[{"role":"user","content":"hello"}],"temperature":-0.0}',
            id="a zero below zero",
        ),
        pytest.param(msgspec.json.encode(CHAT | {"stop": None, "tools": None}), id="nulls"),
        pytest.param(
            msgspec.json.encode(
                CHAT
                | {
                    "stream": False,
                    "n": 1,
                    "presence_penalty": 0.0,
                    "frequency_penalty": 0,
                    "logprobs": False,
                    "stream_options": {"include_usage": False},
                }
            ),
            id="defaults that are spelt out",
        ),
        pytest.param(
            msgspec.json.encode(CHAT | {"model": "alias"}), id="an alias of the same model"
        ),
    ],
)
def test_what_makes_no_difference(raw: bytes) -> None:
    assert keys("chat", raw).merge == chat().merge is not None


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"messages": [{"role": "user", "content": "hello "}]}, id="the prompt"),
        pytest.param({"messages": [{"role": "system", "content": "hello"}]}, id="a role"),
        pytest.param({"stream": True}, id="a stream"),
        pytest.param(
            {"stream": True, "stream_options": {"include_usage": True}}, id="a stream with usage"
        ),
        pytest.param({"max_tokens": 5}, id="a bound"),
        pytest.param({"seed": 1}, id="a seed"),
        pytest.param({"top_p": 1}, id="a default that some models have another one of"),
        pytest.param({"logprobs": True}, id="more to tell"),
        pytest.param({"user": "u"}, id="an end user"),
        pytest.param({"cache_salt": "s"}, id="a field that is not known"),
        pytest.param({"tools": [FUNCTION]}, id="a tool"),
        pytest.param({"n": 2}, id="two answers"),
    ],
)
def test_what_makes_a_difference(fields: dict[str, Any]) -> None:
    other = chat(**fields).merge
    assert other is not None
    assert other != chat().merge


def test_the_order_inside_of_schemas_counts() -> None:
    """It is the order in the prompt."""
    turned = {"type": "function", "function": {"name": "f", "parameters": {"b": 2, "a": 1}}}
    assert chat(tools=[FUNCTION]).merge != chat(tools=[turned]).merge


def test_the_order_of_a_parts_fields_does_not_count() -> None:
    parts = [{"type": "text", "text": "hello"}]
    turned = [{"text": "hello", "type": "text"}]
    one, other = (
        chat(messages=[{"role": "user", "content": content}]) for content in (parts, turned)
    )
    assert one == other
    assert one != chat()


def test_true_and_false_are_no_numbers() -> None:
    raw = {"model": "m", "prompt": "p", "temperature": 0}
    plain, number = keys("completions", raw), keys("completions", raw | {"logprobs": 0})
    assert plain.merge != number.merge
    assert plain == keys("completions", raw | {"logprobs": False})


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        pytest.param({"variant": b"anthropic-beta: x\r\n"}, False, id="another header"),
        pytest.param({"model": "other"}, False, id="another model"),
        pytest.param({"asked": b" Yes "}, True, id="it is asked for"),
        pytest.param({"config": MergingConfig(batch_enabled=False)}, True, id="no batches"),
    ],
)
def test_what_beside_the_body_counts(changes: dict[str, Any], same: bool) -> None:
    assert (keys("chat", CHAT, **changes).merge == chat().merge) is same


@pytest.mark.parametrize(
    ("temperature", "asked", "merged"),
    [
        pytest.param(0, None, True, id="deterministic"),
        pytest.param(0, b"no", False, id="deterministic, and not wanted"),
        pytest.param(0.7, None, False, id="chance decides"),
        pytest.param(0.7, b"yes", True, id="chance decides, and it is wanted"),
        pytest.param(None, None, False, id="the engine's default"),
    ],
)
def test_who_may_share(temperature: float | None, asked: bytes | None, merged: bool) -> None:
    found = keys("chat", CHAT | {"temperature": temperature}, asked=asked)
    assert (found.merge is not None) is merged


@pytest.mark.parametrize(
    ("endpoint", "fields"),
    [
        pytest.param("chat", {"store": True}, id="what is stored"),
        pytest.param("chat", {"kv_transfer_params": {"a": 1}}, id="a cache that is handed on"),
        pytest.param("chat", {"web_search_options": {"a": 1}}, id="a search"),
        pytest.param("chat", {"tools": [{"type": "web_search"}]}, id="a tool of the engine's"),
        pytest.param("chat", {"tools": ["x"]}, id="tools that are none"),
        pytest.param("responses", {"input": "a"}, id="a response, which is stored by default"),
        pytest.param(
            "responses",
            {"input": "a", "store": False, "previous_response_id": "r"},
            id="a response to another",
        ),
        pytest.param(
            "responses", {"input": "a", "store": False, "background": True}, id="in background"
        ),
        pytest.param("messages", {"mcp_servers": [{"url": "x"}]}, id="servers with tools"),
        pytest.param(
            "messages", {"tools": [{"type": "web_search_20250305"}]}, id="a tool of Anthropic's"
        ),
    ],
)
def test_what_never_shares_whatever_it_asks_for(endpoint: Endpoint, fields: dict[str, Any]) -> None:
    assert keys(endpoint, CHAT | fields, asked=b"yes") == NO_KEYS


@pytest.mark.parametrize(
    ("endpoint", "fields"),
    [
        pytest.param("responses", {"input": "a", "store": False}, id="a response"),
        pytest.param("messages", {"max_tokens": 5, "tools": [{"name": "f"}]}, id="messages"),
        pytest.param("chat", {"tools": [FUNCTION, {"type": "custom"}]}, id="tools of the client"),
        pytest.param("completions", {"prompt": [[1, 2], [3]]}, id="completions"),
    ],
)
def test_what_shares_at_every_endpoint(endpoint: Endpoint, fields: dict[str, Any]) -> None:
    assert keys(endpoint, CHAT | fields).merge is not None


@pytest.mark.parametrize("value", [b"", b"true", b"yes, no"])
def test_another_wish_is_refused(value: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        keys("chat", CHAT, asked=value)
    assert (caught.value.status, caught.value.param) == (400, "x-mileage-merge")


def test_merging_can_be_off() -> None:
    off = MergingConfig(enabled=False)
    assert keys("chat", CHAT, off, asked=b"yes") == NO_KEYS
    found = keys("embeddings", EMBED, off)
    assert found.merge is None
    assert found.batch is not None


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(msgspec.json.encode(CHAT | {"pad": "x" * (1 << 20)}), id="too large"),
        pytest.param(
            b'{"model":"m","messages":[1e999],"temperature":0}', id="a number without a value"
        ),
        pytest.param(
            b'{"model":"m","temperature":0,"messages":' + b"[" * 900 + b"]" * 900 + b"}",
            id="deeper than it is worth",
        ),
    ],
)
def test_odd_bodies_have_a_key_of_their_own_or_none(raw: bytes) -> None:
    assert keys("chat", raw).merge != chat().merge


# --- embeddings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "items"),
    [
        pytest.param("a", "text", 1, id="a text"),
        pytest.param(["a"], "text", 1, id="a list of one text"),
        pytest.param(["a", "b"], "text", 2, id="texts"),
        pytest.param([1, 2, 3], "tokens", 1, id="tokens"),
        pytest.param([[1, 2], [3]], "tokens", 2, id="lists of tokens"),
        pytest.param(["a", [1]], None, 1, id="a mixture"),
        pytest.param([{"a": 1}], None, 1, id="what nobody knows"),
    ],
)
def test_items_of_embeddings(value: Any, kind: str | None, items: int) -> None:
    expected = {
        "text": embed(input="z").batch,
        "tokens": embed(input=[7]).batch,
        None: None,
    }[kind]
    found = embed(input=value)
    assert (found.batch, found.batch_items) == (expected, items)
    assert found.merge is not None


def test_one_item_is_the_same_in_a_list() -> None:
    assert embed(input="a") == embed(input=["a"])
    assert embed(input=[1, 2]) == embed(input=[[1, 2]])
    assert embed(input=["a", "b"]).merge != embed(input=["b", "a"]).merge


def test_a_batch_differs_in_nothing_but_the_input() -> None:
    batch = embed().batch
    assert embed(input="other", encoding_format="float").batch == batch
    assert embed(encoding_format="base64").batch != batch
    assert embed(dimensions=8).batch != batch
    assert keys("embeddings", EMBED, model="n").batch != batch
    assert keys("embeddings", EMBED, variant=b"sk").batch != batch


def test_what_is_a_call_by_itself() -> None:
    assert embed(input="x" * (1 << 16)).batch is None
    assert keys("embeddings", EMBED, MergingConfig(batch_enabled=False)).batch is None
    assert keys("embeddings", EMBED, asked=b"no") == NO_KEYS
    assert chat().batch is None
