"""Series and History: named figures of named nodes on one grid of time; a gap is None."""

from __future__ import annotations

import math
from typing import Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from mileage.doctor.rca.events import Event

__all__ = ["POINTS_MIN", "Floats", "History", "Series", "SeriesKind", "kind_of", "plain_name"]

Floats = npt.NDArray[np.float64]

SeriesKind = Literal[
    "load", "latency", "errors", "throughput", "queue", "memory", "host", "device", "other"
]
"""What a figure says of its node. Load comes from above; latency, errors, queues and throughput are
what its users feel; memory, host and device are what lies below."""

POINTS_MIN: Final = 24
"""Points below which nothing is said of what is usual: a median absolute deviation of fewer is off
by more than a fifth."""

_KINDS: Final[dict[str, SeriesKind]] = {
    "requests_per_s": "load",
    "prompt_tokens_per_s": "load",
    "prompt_tokens_mean": "load",
    "connections": "load",
    "output_tokens_per_s": "throughput",
    "decode_tokens_per_s": "throughput",
    "ttft": "latency",
    "itl": "latency",
    "e2e": "latency",
    "failed": "errors",
    "upstream_failures": "errors",
    "rejected": "errors",
    "error": "errors",
    "in_flight": "queue",
    "replica_in_flight": "queue",
    "held": "queue",
    "running": "queue",
    "waiting": "queue",
    "kv_cache_usage": "queue",
    "preemption": "memory",
    "rss": "memory",
    "memory": "memory",
    "fragmentation": "memory",
    "kv_fragmentation": "memory",
    "context_switches": "host",
    "voluntary": "host",
    "involuntary": "host",
    "cpu": "host",
    "gpu": "device",
    "gr_active": "device",
    "sm_": "device",
    "dram": "device",
    "power": "device",
    "temperature": "device",
    "tensor": "device",
}


def kind_of(name: str) -> SeriesKind:
    """The kind of a figure by the longest beginning of its name that is known; else other."""
    fits = [start for start in _KINDS if name.startswith(start)]
    return _KINDS[max(fits, key=len)] if fits else "other"


def plain_name(node: str) -> str:
    """A node as people call it: `replica h100-a`."""
    return node.replace(":", " ", 1)


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one node, a value for each point of the history's grid."""

    node: str
    """`gateway`, or KIND:NAME of a tenant, client, replica, gpu or host."""
    name: str
    values: tuple[float | None, ...]

    @property
    def kind(self) -> SeriesKind:
        """What it says of its node."""
        return kind_of(self.name)

    def array(self) -> Floats:
        """The values, NaN where there is none, or none that is a number."""
        found = np.array([math.nan if v is None else v for v in self.values], dtype=np.float64)
        found[~np.isfinite(found)] = math.nan
        return found


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded. Point `i` is the time from `start_utc_s + i * step_s` on, `step_s` long.

    Points before `since_utc_s` are only what the others are compared with.
    """

    start_utc_s: float
    step_s: float
    series: tuple[Series, ...]
    since_utc_s: float | None = None
    events: tuple[Event, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """Pairs of nodes: requests of the first are served by the second."""
    notes: tuple[str, ...] = ()
    """What is odd about the record: a clock that was set, values that are no numbers."""

    @property
    def points(self) -> int:
        """Points of the grid."""
        return max((len(each.values) for each in self.series), default=0)

    @property
    def first(self) -> int:
        """The first point that is searched."""
        if self.since_utc_s is None:
            return 0
        index = math.ceil((self.since_utc_s - self.start_utc_s) / self.step_s - 1e-9)
        return min(max(index, 0), self.points)

    def at_utc_s(self, index: int) -> float:
        """When the point begins."""
        return self.start_utc_s + index * self.step_s
