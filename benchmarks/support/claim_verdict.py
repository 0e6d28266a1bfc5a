"""Whether a figure bears out a claim: by a rule, so that nobody's hopes decide."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from benchmarks.support.claim_row import Gain

__all__ = ["RULE", "Word", "judge", "row_word"]

Word = Literal["reproduced", "partly", "refuted", "depends on load", "untestable here"]

NEAR_RATIO = 0.25
HALF = 0.5
RULE = (
    "A ratio is the value with the technique over that without, and a gain its logarithm: three "
    "times as much and a third are gains of one size. **Reproduced**: our figure "
    "meets the claimed ratio within 25 %, or the gain has the claimed direction and at least the "
    "claimed size. **Partly**: the direction is the same, and the gain is at least half of the "
    "claimed one. **Refuted**: it is less than half, or the other way. A figure that is a value "
    "and no gain is reproduced within 25 %, partly within a factor of 2, else refuted. A row is "
    "what all of its tested figures are; where they differ, it is partly reproduced. Intervals are "
    "shown, and do not decide: a vague figure would bear out any claim. **Untestable "
    "here**: no command shows it yet."
)
"""The rule in words, for the page."""


def judge(claimed: float, tested: Gain | None, *, absolute: bool = False) -> Word:
    """What `tested` makes of a claimed ratio, or value."""
    if tested is None:
        return "untestable here"
    if tested.loads:
        at_each = {judge(claimed, gain, absolute=absolute) for _, gain in tested.loads}
        return at_each.pop() if len(at_each) == 1 else "depends on load"
    if tested.ratio <= 0.0:
        return "refuted"  # nothing is left of what the side without the technique has
    if claimed * (1 - NEAR_RATIO) <= tested.ratio <= claimed * (1 + NEAR_RATIO):
        return "reproduced"
    if absolute:
        return "partly" if 0.5 <= tested.ratio / claimed <= 2.0 else "refuted"
    size = math.log(claimed)
    share = math.log(tested.ratio) / size if size else 0.0
    if share >= 1.0:
        return "reproduced"
    return "partly" if share >= HALF else "refuted"


def row_word(words: Iterable[Word]) -> Word:
    """What a row is, of whose figures these are."""
    known = {word for word in words if word != "untestable here"}
    if not known:
        return "untestable here"
    if "depends on load" in known:
        return "depends on load"
    return known.pop() if len(known) == 1 else "partly"
