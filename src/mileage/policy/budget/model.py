"""The model budget: each step is filled as far as the ITL target allows, by its fitted time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from mileage.core.bounds import require_at_least, require_up_to
from mileage.policy.budget.policy import Pending, StepLoad
from mileage.policy.budget.prefill_time import PrefillTime
from mileage.policy.budget.trial import Trial

__all__ = ["ModelBudget", "ModelBudgetConfig"]

_FIRST_TOKENS = 128
_GROW_RATIO = 1.25
_BACK_OFF_RATIO = 0.5
_BEHIND_RATIO = 0.25
"""Where the mean counts: so many of those that decode may be held up beyond what they saved."""
_DEBT_GAPS = 1
"""So many gaps they may be behind for a while: what they have yet to generate makes up for it."""
_ALONE_MARGIN = 1.1
"""A burst is begun so early that it may take this much longer than alone."""


class ModelBudgetConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a step is filled."""

    itl: Literal["p99", "mean"] = "p99"
    """What of a request's gaps the ITL target is for. mean: what most of those that decode have
    saved so far is spent on longer steps."""
    cap_ratio: float = 0.9
    """The part of the ITL target that a step may take: the rest is for what the fit errs."""
    chunk_min_tokens: int = 16
    """Fewer prompt tokens are not worth a step: those that wait then wait until a request ends."""
    strained_max: int = 1
    """A prompt that would be late under the cap may go beyond it where at most so many of those
    that decode have no gap left that the p99 of theirs forgives."""

    def __post_init__(self) -> None:
        require_up_to("budget.model.cap_ratio", self.cap_ratio, 1.0)
        require_at_least("budget.model.chunk_min_tokens", self.chunk_min_tokens, 1)
        require_at_least("budget.model.strained_max", self.strained_max, 0)


class ModelBudget:
    """As many prompt tokens as let the step take `cap_ratio` of the ITL target.

    Where nothing decodes nobody waits for a next token, and a step may take any time. Where those
    that decode leave no room for a chunk, none is added until one of them ends: one more would make
    all of them miss their target; unless steps that only decode say otherwise (`Trial`). Where not
    even a single request decodes within the target, there is none to keep.

    The target is for the p99 of a request's gaps: of every hundred one may be as long as it likes.
    These are spent on prompts that would be late in chunks under the cap: see `_beyond`.

    Where the target is for the mean of a request's gaps, a step may take what three in four of
    those that decode have saved so far, besides.

    While the fit is poor, or not there yet, the size of steps follows how long they took.
    """

    __slots__ = ("_burst_s", "_cap_s", "_config", "_feedback_tokens", "_time", "_trial", "again_s")

    def __init__(self, config: ModelBudgetConfig, itl_s: float | None) -> None:
        """`itl_s`: the ITL target in seconds; None: there is none."""
        self._config = config
        self._cap_s = math.inf if itl_s is None else config.cap_ratio * itl_s
        self._feedback_tokens = float(_FIRST_TOKENS)
        self._time = PrefillTime()
        self._trial = Trial(self._cap_s, config.chunk_min_tokens)
        self._burst_s = math.nan
        """The deadline of the prompt that a burst has begun for."""
        self.again_s = math.inf
        """See `BudgetPolicy`."""

    def tokens(self, load: StepLoad, pending: Sequence[Pending], now_s: float) -> int:
        """Prompt tokens of the next step."""
        decoding, kv_tokens, most, *_ = load
        cap_s, time, trial = self._cap_s, self._time, self._trial
        self.again_s = math.inf
        trial.forget()  # there may have been no block for it
        if not decoding or cap_s == math.inf:
            return most
        if not time.good:
            return min(most, int(self._feedback_tokens))
        mean = self._config.itl == "mean"
        if mean:
            cap_s += self._saved_s(load)
        prompts = [(tokens, before) for _, tokens, before in pending]
        room = time.most_within(cap_s, decoding, kv_tokens, prompts)
        least = min(self._config.chunk_min_tokens, pending[0].tokens)
        if room < least:
            if trial.decode_s is None or trial.decode_s > cap_s:
                alone = time.most_within(cap_s, 1, kv_tokens / decoding, prompts[:1])
                if alone < least:
                    return most
            room, self.again_s = trial.tokens(now_s)
        wanted = room if mean else self._beyond(room, load, pending, now_s)
        if wanted != room:
            trial.forget()
        return min(most, wanted)

    def _saved_s(self, load: StepLoad) -> float:
        """By how much three in four of those that decode are ahead of a gap of the cap each, or may
        fall behind it."""
        cap_s = self._cap_s
        saved = sorted([cap_s * (gaps + _DEBT_GAPS) - passed_s for gaps, passed_s in load.past()])
        return max(0.0, saved[int(_BEHIND_RATIO * (len(saved) - 1))]) if saved else 0.0

    def _beyond(self, room: int, load: StepLoad, pending: Sequence[Pending], now_s: float) -> int:
        """`room`, or more where the first prompt would be late in chunks of that size.

        It is computed in one go then, in a single long gap of those that decode, and with it what
        else can be without making it late. That is done at once where all of them have a gap to
        spare. Else it waits until there is just time enough: meanwhile they end, or have gaps to
        spare. While it waits, chunks under the cap go on only where these cost no more than the
        burst does: where a step is long by its weights, whatever its size, they are nearly free;
        where it is the prompt's tokens that bring other weights in (many experts), each of them
        would hold those that decode up, and be worth little.
        """
        first, time = pending[0], self._time
        deadline_s, tokens, before = first
        left_s, alone_s = deadline_s - now_s, time.alone_s(tokens, before)
        reached = room and self._cap_s * max(1.0, tokens / room) <= left_s
        if tokens <= room or reached or deadline_s == math.inf or left_s < alone_s:
            return room
        if deadline_s != self._burst_s:
            gaps = math.ceil(tokens / load.tokens_max)
            strained = sum([spare < gaps for spare in load.spare_gaps()])
            if strained > self._config.strained_max:
                return room
            slack_s = left_s - _ALONE_MARGIN * alone_s - self._cap_s
            if slack_s > 0.0 and strained:
                each_s = (self._cap_s - (self._trial.decode_s or 0.0)) / max(room, 1)
                if room and each_s <= alone_s / tokens:
                    return room
                self.again_s = now_s + slack_s
                return 0
            self._burst_s = deadline_s
        return self._within(left_s, pending)

    def _within(self, left_s: float, pending: Sequence[Pending]) -> int:
        """Tokens of the first prompt, and of those behind it that take no longer than `left_s`."""
        total = 0
        for _, tokens, before in pending:
            left_s -= self._time.alone_s(tokens, before)
            if left_s < 0.0 and total:
                break
            total += tokens
        return total

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
        if not decoding:
            return
        self._trial.learn(prefill_tokens, took_s)
        if not prefill_tokens:
            return
        if took_s > self._cap_s:
            least = self._config.chunk_min_tokens
            self._feedback_tokens = max(least, _BACK_OFF_RATIO * prefill_tokens)
        elif prefill_tokens >= int(self._feedback_tokens):
            self._feedback_tokens *= _GROW_RATIO

    def alone_s(self, tokens: int, before: int) -> float:
        """By the fastest steps."""
        return self._time.alone_s(tokens, before)
