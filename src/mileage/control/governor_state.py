"""GovernorState: what is held and what was decided, for people."""

from __future__ import annotations

import msgspec

from mileage.control.config import GovernorMode, LimitPolicyName
from mileage.control.decisions import Decision
from mileage.core.actions import RejectReason

__all__ = ["GovernorState"]


class GovernorState(msgspec.Struct, frozen=True, kw_only=True):
    """`waiting`: by replica, its part of what is held. The totals are since the start."""

    mode: GovernorMode
    policy: LimitPolicyName
    held: int
    held_by_tenant: dict[str, int]
    held_total: int
    refused_total: dict[RejectReason, int]
    would_hold_total: int
    would_refuse_total: int
    waiting: dict[str, int]
    decisions: list[Decision]
    would_merge_total: int = 0
