"""ToyArms: the totals of two arms as workers report them, made by hand; and a desk over them."""

from __future__ import annotations

from typing import Any

import msgspec

from mileage.control.experiment_config import ExperimentConfig, ExperimentPlan
from mileage.core.errors import MileageError
from mileage.core.events import ExperimentChanged
from mileage.gateway.admin.experiment import ExperimentDesk, ExperimentRecord
from mileage.gateway.experiment_metrics import ExperimentMetrics
from mileage.gateway.messages import ReplicaStatus, Report
from mileage.measure.metrics import FamilySnapshot
from mileage.policy.experiment import ArmName

__all__ = ["CANARY", "DeskSite", "KeptInMemory", "ToyArms", "experiment"]

CANARY: dict[str, Any] = {
    "name": "new",
    "mode": "canary",
    "replicas": ("new",),
    "steps": (0.2, 0.5),
    "step_requests_min": 20,
    "step_time_min_s": 30.0,
    "block_requests_min": 5,
    "block_s": 1.0,
}


def experiment(**changes: Any) -> ExperimentConfig:
    """A canary on replica `new`, but for the changes."""
    return ExperimentConfig(**{**CANARY, **changes})


class ToyArms:
    """What of the fleet an ExperimentDesk needs."""

    def __init__(self) -> None:
        self.metrics = ExperimentMetrics()
        self.states: list[str] = []
        """Of replica `new`, one of each worker."""

    def serve(self, arm: ArmName, count: int, *, failed: int = 0, took_s: float = 0.1) -> None:
        """So many requests of the arm end; all but those that failed after this time."""
        good, metrics = count - failed, self.metrics
        metrics.requests.add((arm, "ok"), good)
        metrics.targets.add((arm, "yes"), good)
        metrics.output_tokens.add((arm,), 10 * good)
        for histogram in (metrics.ttft, metrics.itl, metrics.duration):
            histogram.observe(took_s, (arm,), good)
        if failed:
            metrics.requests.add((arm, "failed"), failed)
            metrics.errors.add((arm, "status"), failed)

    def families(self) -> list[FamilySnapshot]:
        return self.metrics.snapshot()

    def reports(self) -> list[Report]:
        return [
            Report(
                pid=pid,
                at_s=0.0,
                connections=0,
                in_flight=0,
                draining=False,
                ledger_ok=True,
                families=[],
                replicas=[ReplicaStatus(name="new", state=state, models=("m",), in_flight=0)],
            )
            for pid, state in enumerate(self.states, start=1)
        ]


class KeptInMemory:
    """A store that can be full."""

    def __init__(self, record: ExperimentRecord | None = None) -> None:
        self.record = record
        self.full = False

    def load(self) -> ExperimentRecord | None:
        return self.record

    def save(self, record: ExperimentRecord) -> None:
        if self.full:
            raise MileageError("no space left")
        self.record = record


class DeskSite:
    """An ExperimentDesk with a clock that the test moves, and what it told the workers."""

    def __init__(self, record: ExperimentRecord | None = None) -> None:
        self.arms, self.store = ToyArms(), KeptInMemory(record)
        self.now_s = 100.0
        self.told: list[ExperimentPlan | None] = []
        self.desk = ExperimentDesk(
            self.arms,
            self._deliver,
            self.store,
            clock=lambda: self.now_s,
            utc_s=lambda: 1_700_000_000.0 + self.now_s,
        )

    def _deliver(self, event: ExperimentChanged) -> None:
        settings = event.settings
        self.told.append(msgspec.json.decode(settings, type=ExperimentPlan) if settings else None)

    @property
    def ratio(self) -> float | None:
        """Arm b's share as the workers have it; None: they have no arms."""
        assert self.told
        plan = self.told[-1]
        return None if plan is None else plan.split.ratio

    def seconds(self, count: int, *, a: int = 20, b: int = 20, **of_b: Any) -> None:
        """Let so many seconds pass, each with so many requests of the arms."""
        for _ in range(count):
            self.now_s += 1.0
            self.arms.serve("a", a)
            self.arms.serve("b", b, **of_b)
            self.desk.tick()
