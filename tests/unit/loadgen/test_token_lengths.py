"""Token lengths: words for tokens and back, by endpoint and model."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.loadgen.token_lengths import ASSUMED, LengthTable, TokenLengths


@pytest.mark.parametrize(
    ("lengths", "tokens", "words"),
    [
        pytest.param(TokenLengths(), 500, 500, id="nothing known: a token a word"),
        pytest.param(TokenLengths(overhead_tokens=30), 500, 470, id="the template is taken off"),
        pytest.param(TokenLengths(tokens_per_word=1.25), 500, 400, id="words of several tokens"),
        pytest.param(TokenLengths(overhead_tokens=30), 12, 1, id="shorter than the template"),
    ],
)
def test_words_of_a_prompt(lengths: TokenLengths, tokens: int, words: int) -> None:
    assert lengths.words_of(tokens) == words


@pytest.mark.parametrize("tokens", range(31, 400, 7))
def test_tokens_of_the_words_are_the_tokens_again(tokens: int) -> None:
    lengths = TokenLengths(tokens_per_word=1.3, overhead_tokens=30)
    assert abs(lengths.tokens_of(lengths.words_of(tokens)) - tokens) <= 0.65 + 1e-9 or tokens < 32


def test_blocks_have_no_template() -> None:
    lengths = TokenLengths(tokens_per_word=2.0, overhead_tokens=30)
    assert lengths.block_words_of(16) == 8
    assert lengths.block_words_of(1) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("tokens_per_word", 0.0), ("tokens_per_word", float("nan")), ("overhead_tokens", -1.0)],
)
def test_impossible_lengths_are_refused(field: str, value: float) -> None:
    fields: dict[str, Any] = {field: value}
    with pytest.raises(ConfigError, match=field):
        TokenLengths(**fields)


def test_a_table_falls_back_on_the_usual_model_and_then_on_an_assumption() -> None:
    chat, other = TokenLengths(overhead_tokens=30), TokenLengths(overhead_tokens=9)
    table = LengthTable(found={("chat", "m"): chat, ("chat", "lora"): other}, model="m")
    assert table.of("chat", "lora") is other
    assert table.of("chat", "unseen") is chat
    assert table.of("completions", "m") is ASSUMED
    assert LengthTable().of("chat", "m").source == "assumed"
