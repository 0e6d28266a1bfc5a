"""EngineGroup: a replica of several engines, which its host sees as one."""

from __future__ import annotations

import math
from collections.abc import Sequence as Items

from mileage.sim.engine import Engine
from mileage.sim.engine_config import EngineConfig
from mileage.sim.sequence import Sequence

__all__ = ["EngineGroup", "least_busy"]


class EngineGroup:
    """What all groups have in common: who has which request, and what came of it.

    The host's side is that of `Engine`: `add`, `abort`, and at `due_s` `finish_steps` and `begin`.
    """

    def __init__(self, config: EngineConfig, members: Items[Engine]) -> None:
        self.config = config
        self.members = tuple(members)
        self.due_s = math.inf
        """When something happens in one of them; inf: there is nothing to do."""
        self.first: list[Sequence] = []
        self.done: list[Sequence] = []
        self._places: dict[Sequence, Engine] = {}
        """Who has each request."""

    def fits(self, sequence: Sequence) -> bool:
        """Whether each of its engines could ever serve such a request."""
        return all(member.fits(sequence) for member in self.members)

    def restart(self) -> None:
        """Its processes start anew, with nothing to do and with empty caches."""
        for member in self.members:
            member.restart()

    def _finish(self, member: Engine, now_s: float) -> None:
        member.finish_steps(now_s)
        self.first += member.first
        self.done += member.done
        for sequence in member.done:
            self._places.pop(sequence, None)


def least_busy(members: Items[Engine]) -> Engine:
    """The one with the fewest requests; of equals the first."""
    return min(members, key=lambda member: len(member.running) + member.queued)
