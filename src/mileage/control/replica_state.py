"""ReplicaState: one replica as people are told of it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

__all__ = ["ReplicaState", "ReplicaStateName"]

ReplicaStateName: TypeAlias = Literal["up", "down", "open", "half_open"]


class ReplicaState(msgspec.Struct, frozen=True, kw_only=True):
    """One replica for people. `reason`: why it is not used; None while it is up."""

    name: str
    state: ReplicaStateName
    models: tuple[str, ...]
    in_flight: int
    sent: int = 0
    """Attempts sent to it so far."""
    loadable: tuple[str, ...] = ()
    """Models that it loads when asked."""
    reason: str | None = None
    limit: int | None = None
    """Requests that it may run at once; None where nothing limits them."""
    limit_reason: str | None = None
    policy_failed: bool = False
    """The policy of its limit raised and was left out: it runs what the engine itself does."""
    gpu_weight: int = 0
    """Of what is in flight there, as its GPU time is shared out."""
