"""The fixed budget: as many prompt tokens as fit into a step. What engines do by themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mileage.policy.budget.policy import Pending, StepLoad
from mileage.policy.budget.prefill_time import PrefillTime

__all__ = ["FixedBudget"]


class FixedBudget:
    """All that the engine can take on. It learns how long prompts take, for their deadlines."""

    __slots__ = ("_time",)

    def __init__(self) -> None:
        self._time = PrefillTime()

    @property
    def again_s(self) -> float:
        """It never says 0."""
        return math.inf

    def tokens(self, load: StepLoad, pending: Sequence[Pending], now_s: float) -> int:
        """The most."""
        return load.tokens_max

    def learn(
        self,
        decoding: int,
        kv_tokens: float,
        prefill_tokens: int,
        prefill_pairs: float,
        took_s: float,
    ) -> None:
        """Take a step in."""
        self._time.learn(decoding, kv_tokens, prefill_tokens, prefill_pairs, took_s)

    def alone_s(self, tokens: int, before: int) -> float:
        """By the fastest steps."""
        return self._time.alone_s(tokens, before)
