"""Histories with a known root cause: replicas, tenants, noise, and what is changed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from mileage.doctor.rca.events import Event
from mileage.doctor.rca.series import History, Series

__all__ = [
    "ONSET",
    "START_UTC_S",
    "STEP_S",
    "Change",
    "config_change",
    "fleet_history",
    "no_change",
    "overflow",
    "tenant_burst",
]

START_UTC_S: Final = 1_800_000_000.0
STEP_S: Final = 60.0
ONSET: Final = 300

Change: TypeAlias = Callable[[str, str, int], float]
"""Factor of a node's `load` or `ttft` at a point."""


def no_change(node: str, figure: str, at: int) -> float:
    """Noise and nothing else."""
    return 1.0


def overflow(node: str, figure: str, at: int) -> float:
    """Replica a slows; three points later the others get what it cannot take, then they slow."""
    if node == "replica:a":
        return (3.0 if figure == "ttft" else 0.5) if at >= ONSET else 1.0
    if node.startswith("replica:"):
        if figure == "load":
            return 1.6 if at >= ONSET + 3 else 1.0
        return 2.0 if at >= ONSET + 5 else 1.0
    return 1.8 if figure == "ttft" and at >= ONSET + 1 else 1.0


def config_change(node: str, figure: str, at: int) -> float:
    """The TTFT of all doubles within one point."""
    return 2.0 if figure == "ttft" and at >= ONSET else 1.0


def tenant_burst(node: str, figure: str, at: int) -> float:
    """Tenant x asks for five times as much; all are slower."""
    if at < ONSET or (node, figure) == ("tenant:y", "load"):
        return 1.0
    if figure == "load":
        return 5.0 if node == "tenant:x" else 3.0
    return 2.5


def fleet_history(
    seed: int,
    change: Change = no_change,
    *,
    points: int = 480,
    first: int = 120,
    events: Sequence[Event] = (),
    load_noise: float = 0.1,
    ttft_noise: float = 0.15,
) -> History:
    """Three replicas, two tenants and the gateway; normal load, lognormal TTFT."""
    random_ = random.Random(seed)
    series = []
    nodes = {"gateway": 30.0, "tenant:x": 15.0, "tenant:y": 15.0}
    nodes |= {f"replica:{name}": 10.0 for name in "abc"}
    for node, load in nodes.items():
        rows = {
            "requests_per_s": [
                max(0.0, load * (1 + random_.gauss(0, load_noise)) * change(node, "load", at))
                for at in range(points)
            ],
            "ttft_p50_s": [
                0.2 * math.exp(random_.gauss(0, ttft_noise)) * change(node, "ttft", at)
                for at in range(points)
            ],
        }
        series += [
            Series(node=node, name=name, values=tuple(values)) for name, values in rows.items()
        ]
    return History(
        start_utc_s=START_UTC_S,
        step_s=STEP_S,
        since_utc_s=START_UTC_S + first * STEP_S,
        series=tuple(series),
        events=tuple(events),
    )
