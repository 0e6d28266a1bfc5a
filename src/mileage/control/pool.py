"""Pool: the replicas of one base model, and what is held for them."""

from __future__ import annotations

from mileage.control.fair_queue import FairQueue, FairShare
from mileage.control.forecast import WaitForecast
from mileage.control.replicas import Takers

__all__ = ["Pool"]


class Pool:
    """The replicas of one base model: who has had how much of them, and how fast they drain."""

    __slots__ = ("forecast", "queues", "share")

    def __init__(self) -> None:
        self.share = FairShare()
        self.forecast = WaitForecast()
        self.queues: dict[Takers, FairQueue] = {}
        """Those that hold something."""

    def held(self) -> int:
        """Requests held."""
        return sum(queue.count for queue in self.queues.values())
