"""PrefillTime: how long a step with parts of prompts takes, learned from the engine's own steps."""

from __future__ import annotations

import math
from collections.abc import Iterable

from mileage.costmodel.step_time import StepTimeFit

__all__ = ["PrefillTime"]

_LEARN_FIRST = 64
_LEARN_EVERY = 4
_PAIR_UNIT = 1e-3
_FASTEST_FADE = 1e-5


class PrefillTime:
    """The time of a step that computes parts of prompts beside what decodes.

    All tokens of a step go through one GEMM, whoever they are of; beside that counts the context
    that those who decode look back at, and how far each part of a prompt does: a token at the end
    of a long prompt costs several at its beginning. So the fit (`StepTimeFit`: the larger of two
    planes) is over all tokens, the context, and the pairs of a query and a key of the prompts.
    Steps that only decode are not learned from: they are launched in another way.

    How fast prompts go that are alone is not read off the fit, which is only good near the steps
    that there were: it is the fastest that they ever went, a little less with every step, and what
    the fit says of looking back beside that.
    """

    __slots__ = ("_due", "_fastest", "_fit")

    def __init__(self) -> None:
        self._fit = StepTimeFit()
        self._due = 0
        self._fastest = 0.0

    @property
    def good(self) -> bool:
        """The fit may be gone by."""
        return self._fit.good

    def learn(
        self, decoding: int, kv_tokens: float, tokens: int, pairs: float, took_s: float
    ) -> None:
        """A step with this load took so long; what took no time by the clock is left out. After
        the first ones only some are taken in: a sample costs more than it is worth."""
        if not tokens or not took_s > 0.0:
            return
        self._fastest = max(self._fastest * (1.0 - _FASTEST_FADE), tokens / took_s)
        self._due -= 1
        if self._due <= 0:
            self._due = 1 if self._fit.samples < _LEARN_FIRST else _LEARN_EVERY
            self._fit.learn(float(decoding + tokens), kv_tokens, _PAIR_UNIT * pairs, took_s)

    def step_s(self, decoding: int, kv_tokens: float, tokens: int, pairs: float) -> float | None:
        """Seconds of a step; None until there is a fit."""
        return self._fit.predict(float(decoding + tokens), kv_tokens, _PAIR_UNIT * pairs)

    def most_within(
        self,
        cap_s: float,
        decoding: int,
        kv_tokens: float,
        prompts: Iterable[tuple[int, int]],
    ) -> int:
        """Prompt tokens that keep a step within `cap_s`; less than 1: it is longer with any.

        `prompts`, in the order in which they are taken: tokens to be computed, and tokens that
        these look back at.
        """
        planes = [
            (cap_s - constant - per_token * decoding - per_kv * kv_tokens, per_token, per_pair)
            for constant, per_token, per_kv, per_pair in self._fit.planes
        ]
        total = 0
        for tokens, before in prompts:
            part = min(_part(left, each, pair, before) for left, each, pair in planes)
            if part < tokens:
                return total + int(part)
            total += tokens
            pairs = tokens * (before + (tokens + 1) / 2)
            planes = [
                (left - each * tokens - _PAIR_UNIT * pair * pairs, each, pair)
                for left, each, pair in planes
            ]
        return total

    def alone_s(self, tokens: int, before: int) -> float:
        """Seconds of so many tokens of a prompt behind `before` others, in an engine that does
        nothing else; 0 where that is not known."""
        if not self._fastest:
            return 0.0
        pair_s = max([plane[3] for plane in self._fit.planes], default=0.0)
        return tokens / self._fastest + _PAIR_UNIT * pair_s * tokens * (before + tokens / 2)


def _part(left_s: float, token_s: float, pair_s: float, before: int) -> float:
    """Tokens of a prompt that take `left_s` behind `before` others; may be less than none."""
    if left_s <= 0.0:
        return -1.0
    half = _PAIR_UNIT * pair_s / 2
    each = token_s + 2 * half * before
    # half * n**2 + each * n = left, solved without cancellation; what costs nothing has no end.
    bottom = each + math.sqrt(each * each + 4 * half * left_s)
    return 2 * left_s / bottom if bottom > 0.0 else math.inf
