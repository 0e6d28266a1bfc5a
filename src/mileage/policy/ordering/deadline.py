"""Earliest deadline first: if any order keeps all deadlines, this one does."""

from __future__ import annotations

import math

from mileage.policy.ordering.policy import Prompt

__all__ = ["DeadlineOrdering"]


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
