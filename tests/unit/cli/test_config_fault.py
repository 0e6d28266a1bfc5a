"""What an error tells of a value that its key does not take: all but secrets."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from mileage.cli.config_fault import KeyPath, shown_of


@pytest.mark.parametrize(
    ("path", "value", "kind", "shown"),
    [
        pytest.param(("running_max",), "many", int | None, "many", id="text for a number"),
        pytest.param(("prefix_caching",), "yes", bool | None, "yes", id="text for a yes or no"),
        pytest.param(("model",), 5, str, 5, id="a number for text"),
        pytest.param(("context_max_tokens",), "8k", int, "8k", id="a number of tokens"),
        pytest.param(("speculation", "tokens_max"), "x", int, "x", id="tokens are no token"),
        pytest.param(("lora",), ["a"], dict, "(a list)", id="a list may hold anything"),
        pytest.param(("port",), {"token": "s"}, int, "(a table)", id="and so may a table"),
        pytest.param(("admin",), "s", dict[str, str] | None, "(a text)", id="a text for a table"),
        pytest.param(("policy",), "magic", Literal["a", "b"], "magic", id="a choice"),
        pytest.param(("admin", "token"), 1234, str, "(as given)", id="a token"),
        pytest.param(("engines", 0, "api_key_env"), 1234, str, "(as given)", id="a key's variable"),
        pytest.param(("tenants", "a", "keys", 0), "x", dict, "(as given)", id="in a list of keys"),
        pytest.param(("storage", "postgres_url"), 3, str, "(as given)", id="a URL"),
        pytest.param(("port",), "http://u:p@h", int, "(as given)", id="a password in an address"),
        pytest.param(("port",), "sk-abcdefghijkl", int, "(as given)", id="what looks like a key"),
        pytest.param(("port",), "x" * 500, int, "x" * 80, id="cut where it is long"),
    ],
)
def test_what_is_told_of_a_value(path: KeyPath, value: Any, kind: Any, shown: object) -> None:
    assert shown_of(value, kind, path) == shown
