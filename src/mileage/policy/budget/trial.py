"""Trial: small chunks that put to the test what the fit says of steps that it has not seen."""

from __future__ import annotations

import math

__all__ = ["Trial"]

_CALM_RATIO = 0.9
_FIRST_WAIT_S = 0.25
_WAIT_MAX_S = 8.0
_GROW = 2


class Trial:
    """What to do where the fit leaves no room for any prompt, though steps that only decode are
    within the cap.

    From a few steps, all with few requests, a fit may take the requests' context for what makes
    steps long. Then it says that none has room; so no prompt is computed, nothing is learned, and
    it goes on saying so. Therefore the smallest chunk is tried: it hardly makes a step longer. Each
    one that keeps within the cap is followed by one of twice its size, until the fit knows better;
    after one that does not, the next waits, twice as long each time.
    """

    __slots__ = ("_asked_s", "_cap_s", "_decode_s", "_due_s", "_first", "_tokens", "_wait_s")

    def __init__(self, cap_s: float, first_tokens: int) -> None:
        self._cap_s, self._first = cap_s, first_tokens
        self._tokens = first_tokens
        self._decode_s: float | None = None
        self._asked_s: float | None = None
        self._due_s = 0.0
        self._wait_s = _FIRST_WAIT_S

    @property
    def decode_s(self) -> float | None:
        """What the last step that only decoded took; None: there was none."""
        return self._decode_s

    def tokens(self, now_s: float) -> tuple[int, float]:
        """Tokens to try in the next step; where there are none, when to ask again (inf: not before
        something changes)."""
        decode_s = self._decode_s
        if decode_s is None:
            return 0, now_s  # the next step shows it
        if decode_s > _CALM_RATIO * self._cap_s:
            return 0, math.inf
        if now_s < self._due_s:
            return 0, self._due_s
        self._asked_s = now_s
        return self._tokens, math.inf

    def forget(self) -> None:
        """What was asked for was not done."""
        self._asked_s = None

    def learn(self, prefill_tokens: int, took_s: float) -> None:
        """A step beside requests that decode is over."""
        if not prefill_tokens:
            self._decode_s = took_s
            return
        if self._asked_s is None:
            return
        if took_s > self._cap_s:
            self._due_s = self._asked_s + self._wait_s
            self._wait_s = min(_WAIT_MAX_S, 2 * self._wait_s)
            self._tokens = self._first
        else:
            self._tokens = _GROW * max(self._first, prefill_tokens)
            self._wait_s = _FIRST_WAIT_S
        self._asked_s = None
