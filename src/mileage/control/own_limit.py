"""What a limit comes to: within its bounds, and how much of it is ours; pure scalars."""

from __future__ import annotations

import math
from typing import Final

__all__ = ["own_limit", "within"]

_AHEAD_RATIO: Final = 1 / 16
"""Requests that may wait in a full engine, per slot of it."""


def within(limit: int, low: int, high: int, most: int) -> int:
    """The limit within `low..high`, and at most what the engine runs at once; 0: not known."""
    if most > 0:
        high = min(high, most)
    return min(high, max(min(low, high), limit))


def own_limit(limit: int, most: int, in_time: bool, ratio: float) -> int:
    """So much of the limit is ours; `most`: what the engine runs at once, 0 where not known;
    `in_time`: first tokens have a target."""
    if limit == most and not in_time:
        # A slot that is free for the time that the next request takes to come is lost. Where there
        # is a target for the first token, what waits is better refused than out of reach.
        limit += math.ceil(limit * _AHEAD_RATIO)
    return max(1, math.ceil(limit * ratio))
