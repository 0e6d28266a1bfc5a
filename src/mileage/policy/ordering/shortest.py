"""Shortest first, with age: a short prompt passes a long one, which can only be passed so often."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_at_least
from mileage.policy.ordering.policy import Prompt

__all__ = ["ShortestConfig", "ShortestOrdering"]


class ShortestConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a short prompt may come before a long one."""

    patience_ratio: float = 4.0
    """A prompt lets others pass that come within so many times its own time alone."""

    def __post_init__(self) -> None:
        require_at_least("ordering.shortest.patience_ratio", self.patience_ratio, 0.0)


class ShortestOrdering:
    """By arrival plus a multiple of the time that the prompt takes alone.

    With a multiple of 0 it is first come, first served; with an endless one it is shortest first,
    which makes the mean wait the least and starves the longest. In between a prompt of x seconds
    is passed only by what comes within `patience_ratio` times x after it, so that its wait is
    bounded by what it takes itself, times a constant that load alone sets.
    """

    __slots__ = ("_config",)

    def __init__(self, config: ShortestConfig) -> None:
        self._config = config

    def key(self, prompt: Prompt) -> float:
        """Its arrival, and its patience."""
        return prompt.arrived_s + self._config.patience_ratio * prompt.alone_s
