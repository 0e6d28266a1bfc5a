"""First come, first served: what engines do by themselves."""

from __future__ import annotations

from mileage.policy.ordering.policy import Prompt

__all__ = ["FcfsOrdering"]


class FcfsOrdering:
    """In the order of arrival: fair by its own lights, but a long prompt holds up all behind it."""

    __slots__ = ()

    def key(self, prompt: Prompt) -> float:
        """Its arrival."""
        return prompt.arrived_s
