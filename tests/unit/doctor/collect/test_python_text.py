"""What Python prints of objects, read back."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.collect.python_text import read_fields, read_value


def test_fields_of_every_kind() -> None:
    text = (
        "model='a/b', speculative_config=SpeculativeConfig(method='ngram', model=None, n=3), "
        "dtype=torch.bfloat16, length=8192, share=0.9, shape=(1, 2), "
        'graphs={"level": 3, \'mode\': <Mode.FULL: (2, 1)>, "sizes": [1, 2]}, on=True, name=a/b'
    )
    assert read_fields(text) == {
        "model": "a/b",
        "speculative_config": {"method": "ngram", "model": None, "n": 3},
        "dtype": "torch.bfloat16",
        "length": 8192,
        "share": 0.9,
        "shape": [1, 2],
        "graphs": {"level": 3, "mode": "<Mode.FULL: (2, 1)>", "sizes": [1, 2]},
        "on": True,
        "name": "a/b",
    }


def test_a_field_after_a_broken_one_is_still_read_where_its_bracket_closes() -> None:
    assert read_fields("a=B(what is this), b=2") == {"a": {}, "b": 2}


def test_quotes_and_brackets_within_texts() -> None:
    assert read_fields("a='x, b=2', c=\"it's)\", d=4") == {"a": "x, b=2", "c": "it's)", "d": 4}
    assert read_fields(r"a='it\'s', b=1") == {"a": "it's", "b": 1}


def test_a_dict_by_itself() -> None:
    assert read_value("{'model': 'x', 'inner': {'a': [1, {'b': 3}]}, 'n': -1} and more") == {
        "model": "x",
        "inner": {"a": [1, {"b": 3}]},
        "n": -1,
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("", {}, id="nothing"),
        pytest.param("a=", {"a": None}, id="no value"),
        pytest.param("a=[1,2", {"a": [1, 2]}, id="a list that does not end"),
        pytest.param("a=B(c=D(", {"a": {"c": {}}}, id="objects that do not end"),
        pytest.param("a={'x'", {"a": {}}, id="a dict that does not end"),
        pytest.param("no fields here", {}, id="prose"),
    ],
)
def test_what_is_broken_ends_the_reading(text: str, value: dict[str, Any]) -> None:
    assert read_fields(text) == value


def test_depth_is_bounded() -> None:
    assert read_fields("a=" + "[" * 100_000) is not None
    assert read_value("{'a':" * 50_000) is not None
