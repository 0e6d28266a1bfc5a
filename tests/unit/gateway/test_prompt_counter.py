"""Tokens of prompts, by a tokenizer of the test's own: a word is a token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.core.request import Endpoint
from mileage.gateway.prompt_counter import PromptCounter
from mileage.gateway.tokenizer_config import TokenizerConfig
from mileage.gateway.tokenizer_file import check_tokenizers, load_tokenizer, tokenizer_file
from tests.support.tokenizer_files import words_tokenizer

LONG = "one two three four " * 30
TOOLS = [{"type": "function", "function": {"name": "f"}}]


class Watched:
    """A tokenizer that keeps what it is asked."""

    def __init__(self, place: Path) -> None:
        self._inner = load_tokenizer("key", str(place))
        self.asked: list[str] = []

    def encode_batch_fast(
        self, input: Sequence[str], *, add_special_tokens: bool = True
    ) -> Sequence[Any]:
        self.asked += input
        return self._inner.encode_batch_fast(input, add_special_tokens=add_special_tokens)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return words_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json", cut_at=5)


@pytest.fixture
def watched(place: Path) -> Watched:
    return Watched(place)


@pytest.mark.parametrize(
    ("endpoint", "fields", "count"),
    [
        pytest.param("completions", {"prompt": "a b c"}, 3, id="text"),
        pytest.param("completions", {"prompt": LONG}, 120, id="whole, whatever its file says"),
        pytest.param("completions", {"prompt": ["a b", "c"]}, 3, id="several texts"),
        pytest.param("completions", {"prompt": [5, 6, 7, 8]}, 4, id="token ids"),
        pytest.param("completions", {"prompt": [[5, 6], [7]]}, 3, id="several of token ids"),
        pytest.param("completions", {"prompt": [1, LONG]}, 121, id="an id and a text"),
        pytest.param("completions", {"prompt": [[1], LONG]}, 121, id="a list of ids and a text"),
        pytest.param("completions", {"prompt": [[LONG]]}, 120, id="a text in a list of lists"),
        pytest.param("completions", {"prompt": [True, LONG]}, 121, id="a flag is no id"),
        pytest.param("completions", {"prompt": "a", "suffix": "b c"}, 3, id="a suffix"),
        pytest.param("embeddings", {"input": ["a b", "c"]}, 3, id="to embed"),
        pytest.param("embeddings", {"input": [1, 2]}, 2, id="token ids to embed"),
        pytest.param(
            "chat",
            {"messages": [{"role": "user", "content": "a b"}, {"role": "user", "content": "c"}]},
            3,
            id="messages",
        ),
        pytest.param(
            "chat",
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "a b"}]},
                    {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]},
                ]
            },
            3,
            id="parts, and what tools were called with",
        ),
        pytest.param("chat", {"messages": [{"content": "a"}], "tools": TOOLS}, 2, id="tools"),
        pytest.param("responses", {"input": "a b", "instructions": "c"}, 3, id="instructions"),
        pytest.param(
            "messages", {"system": "a b", "messages": [{"content": "c"}]}, 3, id="a system prompt"
        ),
        pytest.param("completions", {"prompt": ""}, 1, id="at least 1"),
        pytest.param("chat", {"messages": [{"role": "user"}]}, None, id="no text: not known"),
    ],
)
def test_tokens_of_a_prompt(
    place: Path, endpoint: Endpoint, fields: dict[str, Any], count: int | None
) -> None:
    counter = PromptCounter(load_tokenizer("key", str(place)))
    assert counter.count(endpoint, json.dumps(fields).encode()) == count


def chat(*texts: str) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text} for text in texts]}).encode()


def test_of_a_conversation_only_what_is_new_is_tokenised(watched: Watched) -> None:
    counter = PromptCounter(watched)
    assert counter.count("chat", chat(LONG, "a b")) == 122
    assert counter.count("chat", chat(LONG, "a b", f"{LONG} x")) == 243
    assert watched.asked == [LONG, "a b", "a b", f"{LONG} x"]


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        pytest.param((None, {}), (None, {}), True, id="what is cached is shared"),
        pytest.param(("a", {}), ("a", {}), True, id="one tenant"),
        pytest.param(("a", {}), ("b", {}), False, id="two tenants"),
        pytest.param(("a", {}), (None, {}), False, id="one that is apart, and others"),
        pytest.param(
            ("a", {"cache_salt": "x"}), ("a", {"cache_salt": "x"}), True, id="a salt of its own"
        ),
        pytest.param(
            ("a", {"cache_salt": "x"}), ("a", {"cache_salt": "y"}), False, id="two salts of its own"
        ),
        pytest.param(
            (None, {"cache_salt": "x"}), (None, {}), False, id="a salt where none are configured"
        ),
    ],
)
def test_those_whose_caches_are_apart_find_nothing_of_one_another(
    watched: Watched,
    first: tuple[str | None, dict[str, Any]],
    second: tuple[str | None, dict[str, Any]],
    shared: bool,
) -> None:
    counter = PromptCounter(watched)
    for apart, fields in (first, second):
        prompt = json.dumps({"prompt": LONG, **fields}).encode()
        assert counter.count("completions", prompt, apart) == 120
    assert watched.asked == [LONG] * (1 if shared else 2)


def test_what_is_kept_is_bounded_and_the_latest(watched: Watched) -> None:
    counter = PromptCounter(watched, kept_max=2)
    texts = [f"{LONG}{number}" for number in range(3)]
    for text in (*texts, texts[0], texts[2]):
        counter.count("chat", chat(text))
    assert watched.asked == [*texts, texts[0]]


def test_a_file_is_found_in_a_directory_and_in_a_cache(tmp_path: Path) -> None:
    plain = words_tokenizer(tmp_path / "plain" / "tokenizer.json")
    assert tokenizer_file("key", str(plain.parent)) == plain
    cached = tmp_path / "models--a--b"
    first = words_tokenizer(cached / "snapshots" / "aaa" / "tokenizer.json")
    assert tokenizer_file("key", str(cached)) == first
    second = words_tokenizer(cached / "snapshots" / "bbb" / "tokenizer.json")
    with pytest.raises(ConfigError, match="there are 2"):
        tokenizer_file("key", str(cached))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("bbb\n")
    assert tokenizer_file("key", str(cached)) == second


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(None, "is no file", id="no file"),
        pytest.param("{", "that can be read: ", id="broken JSON"),
        pytest.param("{}", "that can be read: ", id="JSON of something else"),
    ],
)
def test_what_is_no_tokenizer_is_named_at_the_start(
    tmp_path: Path, text: str | None, expected: str
) -> None:
    path = tmp_path / "tokenizer.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        check_tokenizers(TokenizerConfig(models={"llama": str(path)}))
    assert raised.value.key == "tokenizer.models.llama"
    assert expected in raised.value.expected


@pytest.mark.parametrize(
    "settings",
    [{"threads": 0}, {"waiting_max": 0}, {"wait_max_s": 0.0}, {"bytes_min": 9, "bytes_max": 8}],
    ids=str,
)
def test_bad_bounds_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        TokenizerConfig(**settings)
