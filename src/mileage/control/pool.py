"""Pool: the replicas of one base model, and what is held for them."""

from __future__ import annotations

from mileage.control.fair_queue import FairQueue, FairShare
from mileage.control.forecast import WaitForecast
from mileage.control.prefill_cost import blended
from mileage.control.prompt_speed import PromptSpeed
from mileage.control.replicas import Takers
from mileage.policy.load import PREFILL_COST_BUSY

__all__ = ["Pool"]

_COST_MIN = 0.1


class Pool:
    """The replicas of one base model: who has had how much of them, and how fast they drain."""

    __slots__ = ("_fits", "forecast", "prefill_cost", "queues", "share", "speed")

    def __init__(self) -> None:
        self.share = FairShare()
        self.forecast = WaitForecast()
        self.speed = PromptSpeed()
        self.queues: dict[Takers, FairQueue] = {}
        """Those that hold something."""
        self.prefill_cost = PREFILL_COST_BUSY
        """Engine time of a prompt token, in output tokens: assumed at first, then fitted."""
        self._fits = 0

    def fitted(self, prefill_cost: float) -> None:
        """What a prompt token costs by the fit of one of the replicas."""
        self.prefill_cost = blended(self.prefill_cost, prefill_cost, self._fits)
        self._fits += 1

    def cost_of(self, prompt_tokens: float, output_tokens: float) -> float:
        """Engine work of a request, in output tokens of a busy engine; above 0.

        The first token of an answer comes out of its prefill.
        """
        decoded = output_tokens - 1.0
        return self.prefill_cost * prompt_tokens + (decoded if decoded > _COST_MIN else _COST_MIN)

    def held(self) -> int:
        """Requests held."""
        return sum(queue.count for queue in self.queues.values())
