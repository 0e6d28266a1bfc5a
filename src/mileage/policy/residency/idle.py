"""How long a model that nobody uses stays loaded: the break-even of keeping it and loading it."""

from __future__ import annotations

import math
from collections import deque

__all__ = ["IdleGaps", "break_even_s"]

_GAPS_MAX = 64
_GAPS_MIN = 5
"""So many pauses must have been seen before they are taken for what comes."""
_GAP_MIN_S = 1.0
"""A shorter pause is none: a burst of requests is not to make all others forgotten."""
_MARGIN = 0.1
"""A pause may be longer than the one it is like by this share of it."""
_SLACK = 1.0
"""Break-evens that may be lost to wrong guesses, over all time."""


def break_even_s(load_s: float, wait_cost_ratio: float) -> float:
    """What a load costs, in seconds that the model is kept loaded for nothing: while it loads it
    is paid for, and a client waits whose seconds cost `wait_cost_ratio` each."""
    return load_s * (1.0 + wait_cost_ratio)


class IdleGaps:
    """The pauses between uses of one model, and how long to keep it through the next one.

    To keep a model costs a second for a second; to load it again costs the break-even. Who does not
    know when the next use comes is never worse than twice the clairvoyant by keeping it exactly for
    the break-even (the ski-rental problem: Karlin et al., "Competitive snoopy caching", 1988). The
    pauses of the past tell more: the best time is then the one that would have cost least in them.
    That it is a time from the pause's begin, and not looked at anew while the pause lasts, loses
    nothing: given that the pause has lasted until now, the same time is still the best.

    Both are had by an account. `paid_s` is what our times have cost so far, `optimum_s` what the
    clairvoyant would have paid. A time that is off the break-even B by d loses at most d against
    twice the clairvoyant's, so the next one may be off by 2 * optimum + B - paid, and no more. So
    paid <= 2 * optimum + B always, whatever pauses come.
    """

    __slots__ = ("_gaps", "optimum_s", "paid_s")

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=_GAPS_MAX)
        self.paid_s = self.optimum_s = 0.0

    def keep_s(self, load_cost_s: float) -> float:
        """Seconds that the model is to be kept from the end of its last use; the break-even is
        `load_cost_s`."""
        if len(self._gaps) < _GAPS_MIN:
            return load_cost_s
        off_s = 2.0 * self.optimum_s + _SLACK * load_cost_s - self.paid_s
        if off_s <= 0.0:
            return load_cost_s
        low_s, high_s = max(0.0, load_cost_s - off_s), load_cost_s + off_s
        candidates = {low_s, load_cost_s}
        candidates |= {min(high_s, max(low_s, gap_s * (1.0 + _MARGIN))) for gap_s in self._gaps}
        # Of equal ones that which is the safest: pauses may come that none was like.
        return min(
            sorted(candidates, key=lambda keep_s: abs(keep_s - load_cost_s)),
            key=lambda keep_s: self._cost_s(keep_s, load_cost_s),
        )

    def _cost_s(self, keep_s: float, load_cost_s: float) -> float:
        """What it would have cost to keep it for so long through the pauses so far."""
        return sum(_paid_s(gap_s, keep_s, load_cost_s) for gap_s in self._gaps)

    def ended(self, gap_s: float, keep_s: float, load_cost_s: float) -> None:
        """A pause is over, through which the model was to be kept for `keep_s`."""
        if gap_s >= _GAP_MIN_S or gap_s > keep_s:
            self._gaps.append(gap_s)
        self.paid_s += _paid_s(gap_s, keep_s, load_cost_s)
        self.optimum_s += min(gap_s, load_cost_s)

    def return_s(self, idle_s: float) -> float | None:
        """Mean time until the next use, after a pause that has lasted for `idle_s` already.

        None where no pause was as long, or too few are known.
        """
        if len(self._gaps) < _GAPS_MIN:
            return None
        left = [gap_s - idle_s for gap_s in self._gaps if gap_s > idle_s]
        return math.fsum(left) / len(left) if left else None


def _paid_s(gap_s: float, keep_s: float, load_cost_s: float) -> float:
    return gap_s if gap_s <= keep_s else keep_s + load_cost_s
