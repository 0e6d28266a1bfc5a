"""Events: what happened; the only input of the controller besides the time."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from mileage.core.replica import ReplicaView
from mileage.core.request import Request

__all__ = [
    "Arrived",
    "Cancelled",
    "Event",
    "Failed",
    "FailureKind",
    "Finished",
    "FirstToken",
    "Observed",
    "ReplicaDown",
    "ReplicaUp",
    "Woke",
]

FailureKind = Literal["connect", "timeout", "broken", "status", "busy"]
"""connect: no connection; timeout: no answer in time; broken: the connection or the engine's
protocol broke; status: the engine, or a proxy before it, answered 502, 503 or 504 (a 500 is an
answer: engines give it for input that they cannot handle); busy: all connections that we may have
to it are in use, which is our own limit and says nothing about the engine."""


class Arrived(msgspec.Struct, frozen=True, tag="arrived", gc=False):
    """A request was received whole and is valid."""

    request: Request


class FirstToken(msgspec.Struct, frozen=True, tag="first_token", gc=False):
    """The first token of a stream came from the engine.

    Other answers have none: even their heads come when the generation is over.
    """

    request_id: int


class Finished(msgspec.Struct, frozen=True, tag="finished", gc=False):
    """The engine's answer is complete. Token counts are None where the engine gave none."""

    request_id: int
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


class Failed(msgspec.Struct, frozen=True, tag="failed", gc=False):
    """The attempt on `replica` failed. `retryable`: the client has seen no byte of an answer."""

    request_id: int
    replica: str
    kind: FailureKind
    retryable: bool


class Cancelled(msgspec.Struct, frozen=True, tag="cancelled", gc=False):
    """The client left before its answer was complete. Says nothing about any replica."""

    request_id: int


class Observed(msgspec.Struct, frozen=True, tag="observed", gc=False):
    """A replica was scraped."""

    view: ReplicaView


class ReplicaUp(msgspec.Struct, frozen=True, tag="replica_up", gc=False):
    """A replica is healthy and serves `models`; sent again whenever that list changes."""

    replica: str
    models: tuple[str, ...]


class ReplicaDown(msgspec.Struct, frozen=True, tag="replica_down", gc=False):
    """A replica is not to be used until it is up again; `reason` is for people."""

    replica: str
    reason: str


class Woke(msgspec.Struct, frozen=True, tag="woke", gc=False):
    """The time that a WakeAt asked for has come."""


Event: TypeAlias = (
    Arrived | FirstToken | Finished | Failed | Cancelled | Observed | ReplicaUp | ReplicaDown | Woke
)
