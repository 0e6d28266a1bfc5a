"""ReplicaTime: how long a replica was in one state, as the supervisor saw it."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["ReplicaState", "ReplicaTime"]

ReplicaState = Literal["up", "warmup", "down"]
"""up: it takes requests; warmup: its GPUs are held, but it does not yet; down: it holds none."""


class ReplicaTime(msgspec.Struct, frozen=True, gc=False):
    """A stretch of time in which a replica was in one state. Those of one replica do not overlap;
    what lies between two of them was seen by nobody, and is no capacity.
    """

    replica: str
    from_utc_ns: int
    until_utc_ns: int
    gpus: float
    """GPUs that it holds; parts of one where it is shared."""
    gpu: str
    """Name in the catalogue; empty: not known."""
    state: ReplicaState
