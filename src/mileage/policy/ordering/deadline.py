"""Earliest deadline first: if any order keeps all deadlines, this one does."""

from __future__ import annotations

import math

from mileage.policy.ordering.policy import Prompt

__all__ = ["DeadlineOrdering", "renewed_deadline_s"]


class DeadlineOrdering:
    """Earliest deadline first (Liu and Layland 1973), which is optimal where all can be kept.

    Where a long prompt may take longer than a short one, it lets those that came later go first,
    for so long as it can afford it: its own deadline is what ends that. Of what has no deadline the
    first to come is first, behind all others.
    """

    __slots__ = ()

    def key(self, prompt: Prompt) -> float:
        """Its deadline."""
        return prompt.deadline_s if prompt.deadline_s < math.inf else _FAR_S + prompt.arrived_s


_FAR_S = 1e12
"""Later than any deadline: those without one keep their order behind it."""


def renewed_deadline_s(arrived_s: float, deadline_s: float, soonest_s: float) -> float:
    """The deadline of a prompt that could have its first token at `soonest_s` if it were alone from
    now on: its own, or where that is lost another one, twice as long after its arrival, and so on.
    """
    allowed_s = deadline_s - arrived_s
    while deadline_s < soonest_s:
        allowed_s *= 2
        deadline_s = arrived_s + allowed_s
    return deadline_s
