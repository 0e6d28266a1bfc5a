"""QueueLimit: how many requests one API server lets in beyond those that its engines run."""

from __future__ import annotations

import math
from typing import Final

__all__ = ["QueueLimit"]

_MEMORY: Final = 0.9
"""Of the mean time of requests, kept at each one that ends."""
_RETRY_MAX_S: Final = 60


class QueueLimit:
    """Counts the requests in flight; beyond `most` of them the next is refused.

    They are counted in the API server, so a limit holds whatever the engine is busy with. What
    waits inside the engine because its KV cache is full counts as running.
    """

    def __init__(self) -> None:
        self.in_flight = 0
        self.refused_total = 0
        self._took_s: float | None = None

    def enter(self, most: int | None) -> bool:
        """Let a request in, unless `most` are in already; None: no limit."""
        if most is not None and self.in_flight >= most:
            self.refused_total += 1
            return False
        self.in_flight += 1
        return True

    def leave(self, took_s: float) -> None:
        """A request that was let in has ended."""
        self.in_flight -= 1
        before_s = took_s if self._took_s is None else self._took_s
        self._took_s = _MEMORY * before_s + (1 - _MEMORY) * took_s

    def retry_after_s(self, running_max: int) -> int:
        """Whole seconds until a place should be free: one is every mean time / running_max."""
        if self._took_s is None:
            return 1
        return min(max(1, math.ceil(self._took_s / max(1, running_max))), _RETRY_MAX_S)
