"""PromptSample: looks at the prompts of a few requests, as many as cost next to nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from mileage.core.request import Endpoint
from mileage.gateway.prompt_text import prompt_text
from mileage.measure.prompt_likeness import Likeness, PromptLikeness

__all__ = ["PromptSample"]

SHARE: Final = 0.005
"""Of this thread's time that looking takes at most, over any longer time: requests wait for it."""
CREDIT_S: Final = 1.0
"""A quiet time earns no more than this: 5 ms of looking, which is a few clients that ask together,
or one prompt of tens of kilobytes."""


class PromptSample:
    """Every request is offered. A look is paid for with the time until the next one, so that long
    prompts are looked at more rarely than short ones."""

    __slots__ = ("_clock", "_due_s", "_likeness")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` times the looks, in seconds."""
        # The interpreter's hash of a text has a salt of each process: it tells nobody the text.
        self._likeness = PromptLikeness(hash)
        self._due_s = float("-inf")
        self._clock = clock

    def offer(self, endpoint: Endpoint, body: bytes, now_s: float) -> None:
        """Look at the request's prompt, where it is time for one; `now_s` is monotonic."""
        if now_s < self._due_s:
            return
        began_s = self._clock()
        text = prompt_text(endpoint, body)
        if text is not None:
            self._likeness.look(text)
        took_s = self._clock() - began_s
        self._due_s = max(self._due_s, now_s - CREDIT_S) + took_s / SHARE

    def summary(self) -> Likeness | None:
        """See PromptLikeness."""
        return self._likeness.summary()
