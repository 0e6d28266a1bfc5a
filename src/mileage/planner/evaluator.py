"""Evaluator: does the simulations of a search, one by one; each process has a copy of it."""

from __future__ import annotations

from collections.abc import Sequence

from mileage.planner.built import Builder
from mileage.planner.evaluation import World, evaluate
from mileage.planner.figures import Figures
from mileage.planner.search import Task
from mileage.planner.traffic import Traffic
from mileage.planner.windows import Rung

__all__ = ["Evaluator"]


class Evaluator:
    """Of one model, trace and goal. It can be pickled."""

    def __init__(self, builder: Builder, traffic: Traffic, world: World) -> None:
        self.builder, self.traffic, self.world = builder, traffic, world
        self._parts: dict[Rung, Traffic] = {}

    def one(self, task: Task) -> Figures:
        """Of one candidate, on its window; with intervals on the whole trace."""
        rung = task.rung
        part = self._parts.get(rung)
        if part is None:
            part = self._parts[rung] = self.traffic.part(rung.start, rung.stop)
        built = self.builder.build(task.candidate)
        return evaluate(built, part, self.world, intervals=rung.whole)

    def all(self, tasks: Sequence[Task]) -> list[Figures]:
        """All of them, in order."""
        return [self.one(task) for task in tasks]
