"""PromptSpeed: how fast prompts are prefilled on a replica that does nothing else."""

from __future__ import annotations

import math

__all__ = ["PromptSpeed"]

_TOKENS_MIN = 256
_SIZES = 32
_FADE = 0.002
_TOKENS_MAX = 1 << 30


class PromptSpeed:
    """The fastest that prompts of about the same length went lately, in tokens per second.

    What runs beside a prompt makes it slower, never faster: the fastest one comes closest to being
    alone. With every prompt the record fades by a little, so that a replica that has become slower
    is found out. Per power of two of the length, since attention makes long prompts slower; a
    length that has not been seen is taken to be like the nearest that was.
    """

    __slots__ = ("_fastest",)

    def __init__(self) -> None:
        self._fastest = [0.0] * _SIZES

    def learn(self, tokens: float, took_s: float) -> None:
        """The first token of a prompt came `took_s` after it was sent; `tokens` of it were
        computed. Short ones say little: a step has a price of its own."""
        if _TOKENS_MIN <= tokens <= _TOKENS_MAX and took_s > 0.0:
            size = int(tokens).bit_length()
            faded = self._fastest[size] * (1.0 - _FADE)
            self._fastest[size] = max(faded, tokens / took_s)

    def alone_s(self, tokens: float) -> float:
        """Seconds to the first token of such a prompt; 0 while nothing is known."""
        if not 0.0 < tokens <= _TOKENS_MAX:
            return 0.0
        size = int(tokens).bit_length()
        found, apart = 0.0, math.inf
        for at, speed in enumerate(self._fastest):
            if speed and abs(at - size) < apart:
                found, apart = speed, abs(at - size)
        return tokens / found if found else 0.0
