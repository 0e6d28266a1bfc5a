"""Actions: what the controller decided; its host performs them and decides nothing."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

__all__ = [
    "Action",
    "AskBudget",
    "Dispatch",
    "Hold",
    "Join",
    "JoinKind",
    "Load",
    "Reject",
    "RejectReason",
    "ReturnBudget",
    "SetLimit",
    "WakeAt",
]

RejectReason = Literal[
    "model_not_found",
    "endpoint_not_supported",
    "no_replica",
    "upstream_failed",
    "busy",
    "queue_full",
    "deadline",
    "rate_limited",
    "concurrency_limited",
    "budget_exhausted",
    "load_failed",
]
"""model_not_found: no known replica serves the model (404); endpoint_not_supported: none of those
that serve it has the request's endpoint (501); no_replica: those that have both are all down or
broken (503); upstream_failed: every attempt allowed has failed (502); busy: our own limit of
connections is reached at every replica that was left to try (503); queue_full: the governor's queue
is (503); deadline: the request would miss its TTFT target (503); rate_limited,
concurrency_limited, budget_exhausted: the tenant's own limit (429); load_failed: the model sleeps
and could not be loaded (503)."""

JoinKind = Literal["same", "batch"]
"""same: the request is identical to its leader and shares its answer; batch: its items go upstream
in one call with the leader's."""


class Dispatch(msgspec.Struct, frozen=True, tag="dispatch", gc=False):
    """Send the request, and those that joined it, to the replica now."""

    request_id: int
    replica: str


class Hold(msgspec.Struct, frozen=True, tag="hold", gc=False):
    """Keep the request; a later Dispatch or Reject tells what becomes of it."""

    request_id: int


class Join(msgspec.Struct, frozen=True, tag="join", gc=False):
    """The request shares the generation of `leader_id`, which is held or in flight.

    From then on the controller speaks of the leader only; what it says goes for all that joined.
    """

    request_id: int
    leader_id: int
    kind: JoinKind


class Reject(msgspec.Struct, frozen=True, tag="reject", gc=False):
    """Answer the request with a refusal now. `retry_after_s` is when a retry may succeed; `detail`
    says for people which limit it was, with its figures."""

    request_id: int
    reason: RejectReason
    retry_after_s: float | None = None
    detail: str | None = None


class Load(msgspec.Struct, frozen=True, tag="load", gc=False):
    """Requests are held for a model that no replica has now: have it loaded, at a replica whose
    Loadable names it. Asked once while any are held; more than one controller may ask."""

    model: str


class SetLimit(msgspec.Struct, frozen=True, tag="set_limit", gc=False):
    """The replica is to run at most `limit` requests at once; `reason` is for people.

    The controller keeps to it by itself; a host inside an engine applies it there.
    """

    replica: str
    limit: int
    reason: str


class WakeAt(msgspec.Struct, frozen=True, tag="wake_at", gc=False):
    """Send a Woke event at this monotonic time, unless an earlier one is due."""

    at_s: float


class AskBudget(msgspec.Struct, frozen=True, tag="ask_budget", gc=False):
    """Ask the treasury for `amount` more of an account (see BudgetGranted), at least."""

    account: str
    window: int
    amount: int


class ReturnBudget(msgspec.Struct, frozen=True, tag="return_budget", gc=False):
    """Give `amount` of what was granted back to the treasury, unspent."""

    account: str
    window: int
    amount: int


Action: TypeAlias = (
    Dispatch | Hold | Join | Reject | SetLimit | WakeAt | AskBudget | ReturnBudget | Load
)
