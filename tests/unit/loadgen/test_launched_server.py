"""Command lines of servers that are launched: variables, words, and places in them."""

from __future__ import annotations

import pytest

from mileage.core.errors import ConfigError
from mileage.loadgen.launched_server import words_of

VALUES = {"port": "8000", "value": "a b"}


@pytest.mark.parametrize(
    ("command", "variables", "words"),
    [
        pytest.param("serve --port {port}", {}, ["serve", "--port", "8000"], id="a place"),
        pytest.param("serve {value}", {}, ["serve", "a b"], id="a value stays one word"),
        pytest.param("A=1 B={port} serve", {"A": "1", "B": "8000"}, ["serve"], id="variables"),
        pytest.param("serve A=1", {}, ["serve", "A=1"], id="behind the program it is a word"),
        pytest.param("sh -c 'x; y'", {}, ["sh", "-c", "x; y"], id="quotes"),
        pytest.param("serve '{\"a\": 1}'", {}, ["serve", '{"a": 1}'], id="JSON is no place"),
    ],
)
def test_words(command: str, variables: dict[str, str], words: list[str]) -> None:
    assert words_of(command, VALUES) == (variables, words)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("", id="nothing"),
        pytest.param("A=1", id="no program"),
        pytest.param("serve 'x", id="a quote that is open"),
        pytest.param("serve {host}", id="a place that is unknown"),
    ],
)
def test_what_is_no_command(command: str) -> None:
    with pytest.raises(ConfigError):
        words_of(command, VALUES)
