"""What is told of an engine whose limits the governor sets: its state, and what happened."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from mileage.policy.control_fault import FaultKind
from mileage.policy.engine_knobs import Clamp

__all__ = ["KnobEvent", "KnobEventKind", "KnobState", "KnobStatus"]

KnobState: TypeAlias = Literal["asking", "held", "idle", "unable", "fault"]
"""asking: not answered yet; held: the engine has our values; idle: nothing is to be set; unable:
this engine has no such knob; fault: it cannot be asked, and the gateway's limit is all there is."""

KnobEventKind: TypeAlias = Literal[
    "fault", "answers", "restarted", "lapsed", "clamped", "unable", "others"
]


class KnobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened, for people in `detail`. `at_s` is monotonic."""

    at_s: float
    replica: str
    kind: KnobEventKind
    detail: str


class KnobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How it stands with one engine; null is unknown, or nothing.

    `limit` is the gateway's, and `asked` what the engine was asked for because of it, in each
    rank; `applied` is in force there in the rank that is furthest behind, `applied_version` since
    that version. `gaps`: knobs that it does not have, and why. Totals are since the start.
    """

    replica: str
    state: KnobState
    limit: int | None
    asked: int | None
    requested: int | None
    applied: int | None
    start: int | None
    running_max: int | None
    version: int | None
    applied_version: int | None
    boot: str | None
    ranks: int | None
    clamped: Clamp | None
    gaps: dict[str, str]
    step_budget: dict[str, Any] | None
    """The policy that decides the prompt tokens of its steps, as the engine tells."""
    lease_s: float
    lease_left_s: float | None
    """By the engine's clock, when it last answered."""
    answered_ago_s: float | None
    error: str | None
    error_kind: FaultKind | None
    requests_total: dict[str, int]
    """By outcome: ok, or the kind of the fault."""
    restarts_total: int
    lapses_total: int
