"""SimResult: what came of a simulation."""

from __future__ import annotations

import msgspec

from mileage.sim.node import ReplicaTotals
from mileage.sim.outcome import Outcomes
from mileage.sim.series import Series

__all__ = ["SimResult"]


class SimResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    outcomes: Outcomes
    rejections: dict[str, int]
    """Requests by the reason of their refusal."""
    replicas: tuple[ReplicaTotals, ...]
    series: Series
    start_s: float
    """Arrival of the first request."""
    duration_s: float
    """From then to the end of the last one."""
    gpus: float
    """Of all replicas."""
    gpu_s: float | None = None
    """GPU-seconds that they were there for, starting and draining included. None: all the time."""
