"""The model list: which answers of /v1/models are one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.core.errors import EngineError
from mileage.core.replica import Adapter
from mileage.scrape.model_list import MODELS_MAX, NAME_CHARS_MAX, ModelList, parse_models


def listing(*names: object) -> bytes:
    """An answer with these models."""
    return msgspec.json.encode({"object": "list", "data": [{"id": name} for name in names]})


@pytest.mark.parametrize(
    ("body", "models"),
    [
        pytest.param(listing("b", "a"), ("b", "a"), id="in the engine's order"),
        pytest.param(listing("a", "b", "a"), ("a", "b"), id="each once"),
        pytest.param(listing(), (), id="none"),
        pytest.param(b'{"data": null}', (), id="null"),
        pytest.param(b'[{"id": "a", "type": "chat"}]', ("a",), id="the bare list"),
        pytest.param(listing("x" * NAME_CHARS_MAX), ("x" * NAME_CHARS_MAX,), id="a long name"),
        pytest.param(
            listing("Qwen/Qwen3-8B: \u4e2d"), ("Qwen/Qwen3-8B: \u4e2d",), id="any letters"
        ),
        pytest.param(
            b'{"models": [{"name": 1}], "data": [{"id": "a", "meta": {"n": []}}]}',
            ("a",),
            id="with more fields than we know",
        ),
    ],
)
def test_a_model_list(body: bytes, models: tuple[str, ...]) -> None:
    assert parse_models("e", body) == ModelList(models)


@pytest.mark.parametrize(
    ("data", "adapters"),
    [
        pytest.param(
            [{"id": "b", "parent": None}, {"id": "sql", "root": "/x", "parent": "b"}],
            (Adapter("sql", "sql", "b", "/x"),),
            id="an adapter has its base for a parent",
        ),
        pytest.param(
            [{"id": "b"}, {"id": "sql", "parent": "org/B"}],
            (Adapter("sql", "sql", "org/B"),),
            id="a base by a name that is not served",
        ),
        pytest.param(
            [{"id": "b"}, {"id": "sql", "parent": "b", "root": ["/x"]}],
            (Adapter("sql", "sql", "b"),),
            id="a path that is no text is none",
        ),
        pytest.param([{"id": "b", "parent": "b"}], (), id="its own parent is none"),
        pytest.param([{"id": "b", "parent": ""}], (), id="an empty name is none"),
        pytest.param([{"id": "b", "parent": {"x": 1}}], (), id="what is no text is none"),
        pytest.param([{"id": "b", "parent": "a\n"}], (), id="what cannot be shown is none"),
    ],
)
def test_adapters_are_told_apart(data: list[object], adapters: tuple[Adapter, ...]) -> None:
    body = msgspec.json.encode({"object": "list", "data": data})
    assert parse_models("e", body).adapters == adapters


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"<html>", id="a web page"),
        pytest.param(b'{"data": [{"id": "a"}]', id="half of it"),
        pytest.param(b'{"object": "list"}', id="no data"),
        pytest.param(b'{"error": {"message": "no"}}', id="an error"),
        pytest.param(b'{"data": {"id": "a"}}', id="an object in place of the list"),
        pytest.param(b'{"data": ["a"]}', id="names in place of objects"),
        pytest.param(listing(1), id="a number for a name"),
        pytest.param(listing("a", None), id="one bad entry fails the list"),
        pytest.param(listing(""), id="an empty name"),
        pytest.param(listing("x" * (NAME_CHARS_MAX + 1)), id="a name too long"),
        pytest.param(listing("a\nb"), id="a line break in a name"),
        pytest.param(listing("a\x1b[2J"), id="a terminal escape in a name"),
        pytest.param(b'{"data": [{"id": "\xff"}]}', id="no UTF-8"),
        pytest.param(listing(*map(str, range(MODELS_MAX + 1))), id="too many"),
        pytest.param(b"[" * 100_000, id="deep nesting"),
        pytest.param(b'{"x":' * 100_000, id="deep nesting in a field"),
    ],
)
def test_no_model_list(body: bytes) -> None:
    with pytest.raises(EngineError, match=r"^http://h: no usable model list: "):
        parse_models("http://h", body)


def test_as_many_models_as_are_allowed() -> None:
    assert len(parse_models("e", listing(*map(str, range(MODELS_MAX)))).names) == MODELS_MAX


@given(st.one_of(st.binary(max_size=50), st.text(max_size=20).map(lambda t: listing(t))))
def test_whatever_comes_is_a_list_or_an_engine_error(body: bytes) -> None:
    try:
        models = parse_models("e", body).names
    except EngineError:
        return
    assert all(name.isprintable() for name in models)
