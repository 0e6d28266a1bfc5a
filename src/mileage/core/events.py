"""Events: what happened; the only input of the controller besides the time."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from mileage.core.replica import Adapter, ReplicaView
from mileage.core.request import Request

__all__ = [
    "Arrived",
    "BudgetGranted",
    "BudgetRecalled",
    "Cancelled",
    "ConfigChanged",
    "Event",
    "ExperimentChanged",
    "Failed",
    "FailureKind",
    "Finished",
    "FirstToken",
    "LoadFailed",
    "Loadable",
    "Observed",
    "OthersSeen",
    "ReplicaDown",
    "ReplicaUp",
    "ShareChanged",
    "Woke",
]

FailureKind = Literal["connect", "timeout", "broken", "status", "busy", "unloaded"]
"""connect: no connection; timeout: no answer in time; broken: the connection or the engine's
protocol broke; status: the engine, or a proxy before it, answered 502, 503 or 504 (a 500 is an
answer: engines give it for input that they cannot handle); busy: all connections that we may have
to it are in use, which is our own limit and says nothing about the engine; unloaded: it has not the
adapter that it was said to have loaded, which it may have lost by a restart."""


class Arrived(msgspec.Struct, frozen=True, tag="arrived", gc=False):
    """A request was received whole and is valid."""

    request: Request


class FirstToken(msgspec.Struct, frozen=True, tag="first_token", gc=False):
    """The first token of a stream came from the engine.

    Other answers have none: even their heads come when the generation is over.
    """

    request_id: int


class Finished(msgspec.Struct, frozen=True, tag="finished", gc=False):
    """The engine's answer is complete. Token counts are None where the engine gave none.

    `itl_p99_s` and `itl_mean_s` are of the gaps between the stream's own token events.
    """

    request_id: int
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    itl_p99_s: float | None = None
    itl_mean_s: float | None = None


class Failed(msgspec.Struct, frozen=True, tag="failed", gc=False):
    """The attempt on `replica` failed. `retryable`: the client has seen no byte of an answer."""

    request_id: int
    replica: str
    kind: FailureKind
    retryable: bool


class Cancelled(msgspec.Struct, frozen=True, tag="cancelled", gc=False):
    """The client left before its answer was complete. Says nothing about any replica.

    Of requests that share a generation each one that leaves is told; the generation goes on, under
    its leader's id, until the last one has left. `output_tokens` are those that were seen of it so
    far; None where that is not known.
    """

    request_id: int
    output_tokens: int | None = None


class Observed(msgspec.Struct, frozen=True, tag="observed", gc=False):
    """A replica was scraped."""

    view: ReplicaView


class ReplicaUp(msgspec.Struct, frozen=True, tag="replica_up", gc=False):
    """A replica is healthy and serves `models`, of which `adapters` are made of others; sent again
    whenever these change."""

    replica: str
    models: tuple[str, ...]
    adapters: tuple[Adapter, ...] = ()


class ReplicaDown(msgspec.Struct, frozen=True, tag="replica_down", gc=False):
    """A replica is not to be used until it is up again; `reason` is for people."""

    replica: str
    reason: str


class Loadable(msgspec.Struct, frozen=True, tag="loadable", gc=False):
    """The replica loads these models when a Load asks for one: it sleeps, or they are adapters that
    are not in it now. It is told apart from its health, and replaces what was told before.

    A request for such a model is held while no replica takes it, until a ReplicaUp has the model or
    a LoadFailed tells that it will not come."""

    replica: str
    models: tuple[str, ...]


class LoadFailed(msgspec.Struct, frozen=True, tag="load_failed", gc=False):
    """The model could not be loaded at any replica; `reason` is for people. Before `retry_after_s`
    have passed nobody needs to ask again."""

    model: str
    reason: str
    retry_after_s: float


class Woke(msgspec.Struct, frozen=True, tag="woke", gc=False):
    """The time that a WakeAt asked for has come."""


class ConfigChanged(msgspec.Struct, frozen=True, tag="config_changed", gc=False):
    """Decide by `settings` from now on: the controller's configuration as one JSON document.

    Requests that were taken on before keep what they were promised.
    """

    version: int
    settings: str


class ExperimentChanged(msgspec.Struct, frozen=True, tag="experiment_changed", gc=False):
    """Split the traffic by `settings` from now on: the plan of an experiment as one JSON document;
    empty: there is none any more. Requests that run go on where they are."""

    settings: str


class ShareChanged(msgspec.Struct, frozen=True, tag="share_changed", gc=False):
    """This controller is one of several before the same replicas: `ratio` (above 0, at most 1) of
    every limit that is meant for all of them together is its own."""

    ratio: float


class OthersSeen(msgspec.Struct, frozen=True, tag="others_seen", gc=False):
    """Other workers of the gateway have requests at the same replicas: `weights` are the names of
    the replicas and how much there is of others', in the terms of `control.gpu_meter`. Those that
    are not named have none."""

    weights: tuple[tuple[str, int], ...]


class BudgetGranted(msgspec.Struct, frozen=True, tag="budget_granted", gc=False):
    """`amount` more of the account may be spent in this window, which ends in `renews_s` seconds.

    `last`: there is no more, and what is missing was granted to nobody else either. A new `window`
    voids what was granted before. Amounts are whole numbers of the account's unit: tokens, nano-USD
    or GPU-nanoseconds.
    """

    account: str
    window: int
    amount: int
    renews_s: float
    last: bool = False


class BudgetRecalled(msgspec.Struct, frozen=True, tag="budget_recalled", gc=False):
    """Others need the account: give back what is granted and not reserved."""

    account: str
    window: int


Event: TypeAlias = (
    Arrived
    | FirstToken
    | Finished
    | Failed
    | Cancelled
    | Observed
    | ReplicaUp
    | ReplicaDown
    | Woke
    | ConfigChanged
    | ShareChanged
    | BudgetGranted
    | BudgetRecalled
    | ExperimentChanged
    | OthersSeen
    | Loadable
    | LoadFailed
)
