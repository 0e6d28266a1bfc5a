"""The model budget: each step is filled as far as the ITL target allows, by its fitted time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from mileage.core.bounds import require_at_least, require_up_to
from mileage.policy.budget.policy import Pending, StepLoad
from mileage.policy.budget.prefill_time import PrefillTime

__all__ = ["ModelBudget", "ModelBudgetConfig"]

_FIRST_TOKENS = 128
_GROW_RATIO = 1.25
_BACK_OFF_RATIO = 0.5


class ModelBudgetConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a step is filled."""

    cap_ratio: float = 0.9
    """The part of the ITL target that a step may take: the rest is for what the fit errs."""
    chunk_min_tokens: int = 16
    """Fewer prompt tokens are not worth a step: those that wait then wait until a request ends."""

    def __post_init__(self) -> None:
        require_up_to("budget.model.cap_ratio", self.cap_ratio, 1.0)
        require_at_least("budget.model.chunk_min_tokens", self.chunk_min_tokens, 1)


class ModelBudget:
    """As many prompt tokens as let the step take `cap_ratio` of the ITL target.

    Where nothing decodes nobody waits for a next token, and a step may take any time. Where those
    that decode leave no room for a chunk, none is added until one of them ends: one more would make
    all of them miss their target. Where not even a single request decodes within the target, there
    is none to keep.

    While the fit is poor, or not there yet, the size of steps follows how long they took.
    """

    __slots__ = ("_cap_s", "_config", "_feedback_tokens", "_time")

    def __init__(self, config: ModelBudgetConfig, itl_s: float | None) -> None:
        """`itl_s`: the ITL target in seconds; None: there is none."""
        self._config = config
        self._cap_s = math.inf if itl_s is None else config.cap_ratio * itl_s
        self._feedback_tokens = float(_FIRST_TOKENS)
        self._time = PrefillTime()

    def tokens(self, load: StepLoad, pending: Sequence[Pending], now_s: float) -> int:
        """Prompt tokens of the next step."""
        decoding, kv_tokens, most = load
        cap_s, time = self._cap_s, self._time
        if not decoding or cap_s == math.inf:
            return most
        if not time.good:
            return min(most, int(self._feedback_tokens))
        prompts = [(tokens, before) for _, tokens, before in pending]
        within = time.most_within(cap_s, decoding, kv_tokens, prompts)
        least = min(self._config.chunk_min_tokens, pending[0].tokens)
        if within >= least:
            return min(most, within)
        alone = time.most_within(cap_s, 1, kv_tokens / decoding, prompts[:1])
        return 0 if alone >= least else most

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
        if not prefill_tokens or not decoding:
            return
        if took_s > self._cap_s:
            least = self._config.chunk_min_tokens
            self._feedback_tokens = max(least, _BACK_OFF_RATIO * prefill_tokens)
        elif prefill_tokens >= int(self._feedback_tokens):
            self._feedback_tokens *= _GROW_RATIO

    def alone_s(self, tokens: int, before: int) -> float:
        """By the fastest steps."""
        return self._time.alone_s(tokens, before)
