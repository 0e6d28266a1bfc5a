"""YAML of any kind: values, or an error that names the file and the document."""

from __future__ import annotations

import pytest

from mileage.core.errors import ConfigError
from mileage.scrape.yaml_documents import yaml_documents, yaml_value


def test_documents_come_in_order_and_json_is_read_as_json() -> None:
    assert yaml_documents("a: 1\n---\n---\nb: [x]\n", place="f") == [{"a": 1}, None, {"b": ["x"]}]
    assert yaml_documents('{"kind": "List", "items": []}', place="f") == [
        {"kind": "List", "items": []}
    ]
    assert yaml_documents("{a: 1}", place="f") == [{"a": 1}]


def test_times_stay_as_they_are_written() -> None:
    assert yaml_documents("t: 2025-01-31T08:00:00Z", place="f") == [{"t": "2025-01-31T08:00:00Z"}]


LAUGHS = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{now}: &{now} [{','.join([f'*{before}'] * 10)}]\n"
    for before, now in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: [", id="an end is missing"),
        pytest.param("a: {{ .Values.x }}", id="a template that was not filled in"),
        pytest.param("!!int x", id="a tag that does not fit"),
        pytest.param("!!bool x", id="a flag that is none"),
        pytest.param("!!python/object/apply:os.system [ls]", id="a command"),
        pytest.param("&a [*a]", id="a list that holds itself"),
        pytest.param(LAUGHS, id="a billion values out of a few lines"),
        pytest.param("[" * 100_000, id="very many levels"),
        pytest.param("- " * 5_000, id="very many levels of blocks"),
        pytest.param("\x00", id="a control character"),
        pytest.param("1" * 5_000, id="a number of very many digits"),
    ],
)
def test_what_cannot_be_read_names_the_file_and_the_document(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        yaml_documents(f"a: 1\n---\n{text}", place="all.yaml")
    assert caught.value.place == "all.yaml, document 2"
    assert "\n" not in str(caught.value)


def test_a_text_inside_of_another_is_read_or_is_nothing() -> None:
    assert yaml_value("version: v1") == {"version": "v1"}
    assert yaml_value("a: [") is None
    assert yaml_value(None) is None
