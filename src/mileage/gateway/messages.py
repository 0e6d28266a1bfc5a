"""Messages between the supervisor and its worker processes, framed over a socket pair."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from mileage.control.accounts import AccountSpend
from mileage.control.governor_state import GovernorState
from mileage.core.actions import AskBudget, ReturnBudget
from mileage.core.events import Event
from mileage.core.slo import SloConfig
from mileage.gateway.config import GatewayConfig, Upstream
from mileage.gateway.pause_watch import LongPause
from mileage.measure.metrics import FamilySnapshot
from mileage.measure.prompt_likeness import Likeness

__all__ = [
    "BudgetTalk",
    "Configure",
    "Deliver",
    "Drain",
    "FromWorker",
    "GovernorReport",
    "LoadTalk",
    "Mark",
    "Marked",
    "Ready",
    "Reconfigure",
    "ReplicaStatus",
    "Report",
    "Retarget",
    "ToWorker",
]


class Configure(msgspec.Struct, frozen=True, tag="configure"):
    """The whole configuration; the first message to a worker."""

    config: GatewayConfig
    version: int = 1


class Reconfigure(msgspec.Struct, frozen=True, tag="reconfigure"):
    """Another configuration: go on with it. What is in flight keeps what it started with."""

    config: GatewayConfig
    version: int


class Retarget(msgspec.Struct, frozen=True, tag="retarget"):
    """A replica is called otherwise from now on: elsewhere, say. What it has in flight finishes."""

    upstream: Upstream


class Deliver(msgspec.Struct, frozen=True, tag="deliver"):
    """Events from outside the data plane: replicas up, down, observed."""

    events: tuple[Event, ...]


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Finish what is in flight, refuse what is new, then exit."""


class Mark(msgspec.Struct, frozen=True, tag="mark"):
    """Answer when all that was told before this is taken in."""

    number: int


class Marked(msgspec.Struct, frozen=True, tag="marked"):
    """All that was told before the mark of this number is taken in."""

    number: int


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The worker accepts connections."""

    pid: int


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One replica as one worker sees it. `state`: up, down, open (breaker) or half_open.

    `limit` is this worker's part of what the replica may run at once: over all workers they sum to
    it. None where nothing limits it.
    """

    name: str
    state: str
    models: tuple[str, ...]
    in_flight: int
    reason: str | None = None
    limit: float | None = None
    limit_reason: str | None = None
    policy_failed: bool = False
    sent_total: int = 0
    """Attempts that it has sent there."""
    gpu_weight: int = 0
    """Of what it has in flight there, for the GPU meters of the others."""


class GovernorReport(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's governor. `failure`: why it lets everything through; None while it works.
    `state` is None where it cannot be told."""

    state: GovernorState | None
    slo: SloConfig
    failure: str | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True, tag="report"):
    """What a worker did so far: cumulative metrics and the present state, about once a second."""

    pid: int
    at_s: float
    connections: int
    in_flight: int
    draining: bool
    ledger_ok: bool
    families: list[FamilySnapshot]
    replicas: list[ReplicaStatus]
    config_version: int | None = None
    """Of the configuration that it works by."""
    governor: GovernorReport | None = None
    pauses: tuple[LongPause, ...] = ()
    """What kept it from its requests in the last minute."""
    likeness: Likeness | None = None
    """What the prompts of late have in common."""
    adapter_uses: dict[str, int] = {}
    """Requests that came for each LoRA adapter since the last report."""
    waiting: dict[str, int] = {}
    """By model: requests that are held until it is loaded."""


class BudgetTalk(msgspec.Struct, frozen=True, kw_only=True, tag="budgets"):
    """What a worker has spent of budgets so far, and what it asks of the treasury or gives back."""

    spends: tuple[AccountSpend, ...]
    actions: tuple[AskBudget | ReturnBudget, ...] = ()


class LoadTalk(msgspec.Struct, frozen=True, tag="load"):
    """Requests of a worker wait for a model: it is to be loaded."""

    model: str


ToWorker: TypeAlias = Configure | Reconfigure | Retarget | Deliver | Drain | Mark
FromWorker: TypeAlias = Ready | Report | BudgetTalk | LoadTalk | Marked
