"""Step mathematics: stretches of steps that only decode are arithmetic series; pure scalars.

With n requests that decode and K tokens of context, step j (0, 1, ...) of a stretch takes
c + d * j seconds, where c = a + b * K and d = b * n: every step adds a token to every context. Of a
table of two lines the slower one holds; as both grow, the second overtakes the first at most once:
steps 0..turn-1 follow (c1, d1), and those from `turn` on (c2, d2). A table of one line has a `turn`
of `NEVER`. All functions here are plain arithmetic: a compiled path may call the very same.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = [
    "NEVER",
    "blocks_of",
    "busy_of",
    "mixed_line_s",
    "pairs_of",
    "series_s",
    "steps_to_reach",
    "steps_until",
    "stretch_of",
    "stretch_s",
    "turn_of",
]

NEVER: Final = 1 << 62
"""More steps than any stretch has."""


def blocks_of(tokens: int, block_tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // block_tokens)


def busy_of(tokens: int, token_s: float, passed_s: float) -> float:
    """How full the steps of a time were, times the share of it that had any: see `Node.observe`."""
    return min(1.0, tokens * token_s / passed_s)


def pairs_of(before: int, chunk: int) -> float:
    """Pairs of a query and a key of a chunk of a prompt behind `before` earlier tokens."""
    return chunk * before + chunk * (chunk + 1) / 2


def mixed_line_s(
    mixed_s: float,
    kv_s: float,
    pair_s: float,
    request_s: float,
    decoding: int,
    context: float,
    pairs: float,
) -> float:
    """Seconds that one line gives a step with prompt tokens; `mixed_s`: for all of its tokens."""
    line_s = mixed_s + request_s * decoding
    return line_s + (kv_s * context + pair_s * pairs)


def series_s(steps: int, c: float, d: float) -> float:
    """Seconds of steps 0..steps-1 of one line."""
    return steps * c + d * (steps * (steps - 1) / 2)


def turn_of(c1: float, d1: float, c2: float, d2: float) -> int:
    """The first step from which the second line is slower; the first line is slower at step 0.

    Where rounding puts it one off, both lines are equal there within rounding.
    """
    if d2 <= d1:
        return NEVER
    turn = (c1 - c2) / (d2 - d1)
    return int(turn) + 1 if turn < NEVER else NEVER


def stretch_of(
    c1: float, d1: float, c2: float, d2: float
) -> tuple[float, float, int, float, float]:
    """The stretch (c1, d1, turn, c2, d2) of a table of two lines, in whatever order they are."""
    if c2 > c1 or (c2 == c1 and d2 > d1):
        c1, d1, c2, d2 = c2, d2, c1, d1
    return c1, d1, turn_of(c1, d1, c2, d2), c2, d2


def stretch_s(steps: int, c1: float, d1: float, turn: int, c2: float, d2: float) -> float:
    """Seconds of the first `steps` steps of a stretch."""
    if steps <= turn:
        return series_s(steps, c1, d1)
    return series_s(turn, c1, d1) + (series_s(steps, c2, d2) - series_s(turn, c2, d2))


def steps_to_reach(time_s: float, c: float, d: float) -> int:
    """The fewest steps of one line that take at least `time_s`: the root of a quadratic, made
    exact. `c` above 0, `d` at least 0 and at most `c`."""
    if time_s <= 0.0:
        return 0
    half = c - d / 2
    steps = math.ceil(2 * time_s / (half + math.sqrt(half * half + 2 * d * time_s)))
    while steps > 0 and series_s(steps - 1, c, d) >= time_s:
        steps -= 1
    while series_s(steps, c, d) < time_s:
        steps += 1
    return steps


def steps_until(time_s: float, c1: float, d1: float, turn: int, c2: float, d2: float) -> int:
    """The fewest steps of a stretch that take at least `time_s`."""
    steps = steps_to_reach(time_s, c1, d1)
    if steps <= turn:
        return steps
    # The rest as if the second line had held from the start.
    before_s = series_s(turn, c2, d2) - series_s(turn, c1, d1)
    steps = max(turn + 1, steps_to_reach(time_s + before_s, c2, d2))
    while steps > turn + 1 and stretch_s(steps - 1, c1, d1, turn, c2, d2) >= time_s:
        steps -= 1
    while stretch_s(steps, c1, d1, turn, c2, d2) < time_s:
        steps += 1
    return steps
