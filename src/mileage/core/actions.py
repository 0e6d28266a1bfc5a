"""Actions: what the controller decided; its host performs them and decides nothing."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

__all__ = ["Action", "Dispatch", "Reject", "RejectReason", "WakeAt"]

RejectReason = Literal[
    "model_not_found", "endpoint_not_supported", "no_replica", "upstream_failed", "busy"
]
"""model_not_found: no known replica serves the model (404); endpoint_not_supported: none of those
that serve it has the request's endpoint (501); no_replica: those that have both are all down or
broken (503); upstream_failed: every attempt allowed has failed (502); busy: our own limit of
connections is reached at every replica that was left to try (503)."""


class Dispatch(msgspec.Struct, frozen=True, tag="dispatch", gc=False):
    """Send the request to the replica now."""

    request_id: int
    replica: str


class Reject(msgspec.Struct, frozen=True, tag="reject", gc=False):
    """Answer the request with a refusal now. `retry_after_s` is when a retry may succeed."""

    request_id: int
    reason: RejectReason
    retry_after_s: float | None = None


class WakeAt(msgspec.Struct, frozen=True, tag="wake_at", gc=False):
    """Send a Woke event at this monotonic time, unless an earlier one is due."""

    at_s: float


Action: TypeAlias = Dispatch | Reject | WakeAt
