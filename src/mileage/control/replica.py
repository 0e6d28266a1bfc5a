"""Replica: one engine as the controller knows it: its models, its health, its load."""

from __future__ import annotations

from collections.abc import Collection

from mileage.control.config import ControlConfig
from mileage.control.first_limit import make_throttle
from mileage.control.gpu_meter import GpuMeter
from mileage.control.replica_state import ReplicaState, ReplicaStateName
from mileage.core.request import Endpoint
from mileage.policy.breaker import Breaker
from mileage.policy.load import ReplicaLoad
from mileage.policy.routing import name_hash
from mileage.policy.service_rate import FleetRates

__all__ = ["Replica"]

_NEVER_UP = "not up yet"


class Replica(ReplicaLoad):
    """One configured replica: its health, its breaker, and (inherited) its load."""

    __slots__ = (
        "bit",
        "breaker",
        "down_reason",
        "failure",
        "lacks",
        "loadable",
        "meter",
        "models",
        "name",
        "sent",
        "serves",
        "throttle",
    )

    def __init__(
        self,
        name: str,
        bit: int,
        config: ControlConfig,
        lacks: Collection[Endpoint] = (),
    ) -> None:
        super().__init__(name_hash(name), FleetRates(), config.routing.view_max_age_s)
        self.cached.blocks_max = config.routing.prefix_blocks_max
        self.throttle = make_throttle(config)
        self.throttle.told_max(config.replica_running_max.get(name))
        self.meter = GpuMeter(config.replica_gpus.get(name, 1.0))
        self.name = name
        self.bit = bit
        """Its place in a request's set of replicas tried."""
        self.breaker = Breaker(config.breaker)
        self.lacks: frozenset[Endpoint] = frozenset(lacks)
        """Endpoints that it does not have."""
        self.models: tuple[str, ...] = ()
        self.serves: frozenset[str] = frozenset()
        """The models, to look one up: a replica may have a thousand adapters."""
        self.loadable: frozenset[str] = frozenset()
        """Models that it loads when asked; it may have them, or not."""
        self.sent = 0
        """Attempts sent to it so far."""
        self.down_reason: str | None = _NEVER_UP
        self.failure: str | None = None
        """The last failure, for people."""

    def state(self) -> ReplicaState:
        """The replica as people are told of it."""
        state: ReplicaStateName = "up"
        reason = self.down_reason
        if reason is not None:
            state = "down"
        elif self.breaker.state != "closed":
            state, reason = self.breaker.state, f"circuit breaker; last failure: {self.failure}"
        return ReplicaState(
            name=self.name,
            state=state,
            models=self.models,
            in_flight=self.in_flight,
            sent=self.sent,
            loadable=tuple(sorted(self.loadable)),
            reason=reason,
            limit=self.throttle.limit,
            limit_reason=self.throttle.reason,
            policy_failed=self.throttle.failed,
            gpu_weight=self.meter.weight,
        )
