"""TokenLengths: how many words make a prompt of so many tokens, for one model and endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from mileage.core.bounds import require_at_least, require_positive
from mileage.core.request import Endpoint

__all__ = ["ASSUMED", "LengthSource", "LengthTable", "TokenLengths"]

LengthSource = Literal["tokenize", "probe", "assumed"]
"""tokenize: the engine's tokenizer was asked; probe: its usage of short requests; assumed: neither
could be had."""


class TokenLengths(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """prompt tokens = overhead_tokens + tokens_per_word * words."""

    tokens_per_word: float = 1.0
    overhead_tokens: float = 0.0
    """What the chat template, and the tokenizer at a text's beginning, add."""
    source: LengthSource = "assumed"
    residual_tokens: float | None = None
    """How far the worst of the samples lies from the line; None: nothing was sampled."""
    reason: str | None = None
    """Why no better source was used."""

    def __post_init__(self) -> None:
        require_positive("tokens_per_word", self.tokens_per_word, "tokens")
        require_at_least("overhead_tokens", self.overhead_tokens, 0.0)

    def words_of(self, prompt_tokens: int) -> int:
        """Words for so many tokens, at least one."""
        return max(1, round((prompt_tokens - self.overhead_tokens) / self.tokens_per_word))

    def block_words_of(self, block_tokens: int) -> int:
        """Words for a block of so many tokens within a prompt, at least one."""
        return max(1, round(block_tokens / self.tokens_per_word))

    def tokens_of(self, words: int) -> float:
        """Tokens that a prompt of so many words is expected to have."""
        return self.overhead_tokens + self.tokens_per_word * words


ASSUMED: Final = TokenLengths(reason="the endpoint was not asked")


class LengthTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was found out, by endpoint and model."""

    found: Mapping[tuple[Endpoint, str], TokenLengths] = {}
    model: str = ""
    """Stands for models that were not looked at."""

    def of(self, endpoint: Endpoint, model: str) -> TokenLengths:
        """Of this model, else of the one that stands for others, else assumed."""
        found = self.found.get((endpoint, model))
        if found is None:
            found = self.found.get((endpoint, self.model), ASSUMED)
        return found
