"""Replicas and the models they serve: who may be sent a request for which model now."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from mileage.control.config import ControlConfig
from mileage.control.first_limit import first_limit, make_throttle
from mileage.control.gpu_meter import GpuMeter
from mileage.core.request import Endpoint
from mileage.policy.breaker import Breaker
from mileage.policy.limits.choose import make_limit
from mileage.policy.load import ReplicaLoad
from mileage.policy.routing import Candidates, name_hash
from mileage.policy.service_rate import FleetRates

if TYPE_CHECKING:
    from mileage.control.pool import Pool

__all__ = ["Replica", "ReplicaState", "ReplicaStateName", "Replicas", "Route", "Takers"]

ReplicaStateName: TypeAlias = Literal["up", "down", "open", "half_open"]

_LEFT = "not configured any more"
_NEVER_UP = "not up yet"
_OUTPUT_ASSUMED_TOKENS = 128.0
_OUTPUT_GAIN_MIN = 0.05


class ReplicaState(msgspec.Struct, frozen=True, kw_only=True):
    """One replica for people. `reason`: why it is not used; None while it is up."""

    name: str
    state: ReplicaStateName
    models: tuple[str, ...]
    in_flight: int
    reason: str | None = None
    limit: int | None = None
    """Requests that it may run at once; None where nothing limits them."""
    limit_reason: str | None = None
    policy_failed: bool = False
    """The policy of its limit raised and was left out: it runs what the engine itself does."""


class Replica(ReplicaLoad):
    """One configured replica: its health, its breaker, and (inherited) its load."""

    __slots__ = (
        "bit",
        "breaker",
        "down_reason",
        "failure",
        "lacks",
        "meter",
        "models",
        "name",
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
            reason=reason,
            limit=self.throttle.limit,
            limit_reason=self.throttle.reason,
            policy_failed=self.throttle.failed,
        )


class Takers:
    """Replicas that can serve a request, and those among them that take one now."""

    __slots__ = ("closed", "half_open", "pool", "serving")

    def __init__(self) -> None:
        self.pool: Pool | None = None
        """Theirs, once it was looked up; anew after each change."""
        self.serving: tuple[Replica, ...] = ()
        """All that can, also while they are down."""
        self.closed: Candidates[Replica] = Candidates(())
        """Those that take any request now."""
        self.half_open: tuple[Replica, ...] = ()
        """Those that take one request now, as a probe."""

    def retry_after_s(self, now_s: float) -> float | None:
        """Seconds until the next open breaker lets a request through.

        None where none is open, and where others take requests now.
        """
        if self.closed.loads or self.half_open:
            return None
        due_s = min(
            (r.breaker.retry_at_s for r in self.serving if r.down_reason is None), default=math.inf
        )
        return None if due_s == math.inf else max(0.0, due_s - now_s)

    def refresh(self) -> None:
        """Sort the serving replicas by what their health and breakers admit."""
        self.pool = None
        up = [replica for replica in self.serving if replica.down_reason is None]
        closed = tuple(replica for replica in up if replica.breaker.state == "closed")
        if closed != self.closed.loads:
            self.closed = Candidates(closed)
        self.half_open = tuple(r for r in up if r.breaker.state == "half_open" and r.breaker.admits)


class Route(Takers):
    """One model: the replicas that serve it, and how long its answers are."""

    __slots__ = ("_gain", "output_tokens", "partial")

    def __init__(self) -> None:
        super().__init__()
        self.partial: dict[Endpoint, Takers] = {}
        """For each endpoint that some of them lack: those that have it."""
        self.output_tokens = _OUTPUT_ASSUMED_TOKENS
        """Length of an answer to expect."""
        self._gain = 1.0

    def answered(self, output_tokens: int) -> None:
        """Learn from a complete answer: a plain mean at first, then an EWMA."""
        self.output_tokens += self._gain * (output_tokens - self.output_tokens)
        if self._gain > _OUTPUT_GAIN_MIN:
            self._gain = max(_OUTPUT_GAIN_MIN, self._gain / (1.0 + self._gain))

    def serve(self, replicas: Sequence[Replica]) -> None:
        """These have the model now."""
        self.serving = tuple(replicas)
        lacked = frozenset[Endpoint]().union(*(replica.lacks for replica in replicas))
        known = self.partial
        # Once there they stay: what is held for them is to see who comes and goes.
        self.partial = {e: known.get(e) or Takers() for e in sorted(lacked | known.keys())}
        for endpoint, takers in self.partial.items():
            takers.serving = tuple(r for r in replicas if endpoint not in r.lacks)
        self.refresh()

    def refresh(self) -> None:
        """Sort the serving replicas by what their health and breakers admit."""
        super().refresh()
        for takers in self.partial.values():
            takers.refresh()


class Replicas:
    """All configured replicas by name, and the routes by model."""

    __slots__ = (
        "_bit",
        "_by_name",
        "_config",
        "_fleets",
        "half_open_due_s",
        "routes",
        "seen_up",
    )

    def __init__(
        self,
        names: Iterable[str],
        config: ControlConfig,
        lacks: Mapping[str, Collection[Endpoint]],
    ) -> None:
        self._config = config
        self._bit = 1
        self._by_name: dict[str, Replica] = {}
        for name in dict.fromkeys(names):
            self._by_name[name] = self._new(name, lacks.get(name, ()))
        self._fleets: dict[str, FleetRates] = {}
        self.routes: dict[str, Route] = {}
        self.seen_up = False
        """Whether any replica has ever been up, so that its models are known."""
        self.half_open_due_s = math.inf
        """When the next open breaker becomes half-open."""

    def _new(self, name: str, lacks: Collection[Endpoint]) -> Replica:
        config, bit = self._config, self._bit
        self._bit <<= 1
        return Replica(name, bit, config, lacks)

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Replica | None:
        """The replica of that name, if it is configured."""
        return self._by_name.get(name)

    def reconfigure(self, config: ControlConfig, now_s: float) -> None:
        """Decide by this from now on; what is known of the replicas that stay, stays.

        One that is left out gets no request any more; those that it has go on.
        """
        limits_changed = config.governor != self._config.governor
        self._config = config
        if config.replicas is not None:
            self._replace(config.replicas, config.lacks)
        for replica in self:
            replica.breaker.config = config.breaker
            replica.meter.set_gpus(config.replica_gpus.get(replica.name, 1.0), now_s)
            replica.view_max_age_s = config.routing.view_max_age_s
            replica.throttle.told_max(config.replica_running_max.get(replica.name))
            if limits_changed:
                replica.throttle.use(make_limit(config.governor, limit=replica.throttle.limit))
                replica.throttle.order(config.governor, now_s)

    def _replace(self, names: Sequence[str], lacks: Mapping[str, Collection[Endpoint]]) -> None:
        before = self._by_name
        self._by_name = {}
        for name in dict.fromkeys(names):
            replica = before.pop(name, None) or self._new(name, ())
            replica.lacks = frozenset(lacks.get(name, ()))
            self._by_name[name] = replica
        for replica in before.values():
            self.down(replica, _LEFT)
            # It still hears of what it runs, but there may be no route to sort it on.
            replica.models, replica.serves = (), frozenset()
            replica.join(FleetRates())  # it says nothing about the others any more
        for model in list(self.routes):
            self._reassign(model)

    def up(self, replica: Replica, models: Sequence[str]) -> None:
        """The replica is healthy and serves exactly `models`."""
        models = tuple(dict.fromkeys(models))
        was_down = replica.down_reason is not None
        if not was_down and models == replica.models:
            return
        self.seen_up = True
        if was_down:
            replica.down_reason = None
            replica.breaker.reset()
            replica.restarted()
            limit = first_limit(self._config)
            replica.throttle.restarted(make_limit(self._config.governor, limit=limit), limit)
        if models != replica.models:
            if models and models[:1] != replica.models[:1]:
                # Engines list their base model first: those that share it are one fleet, whose
                # members say something about each other.
                replica.join(self._fleets.setdefault(models[0], FleetRates()))
            changed = replica.serves.symmetric_difference(models)
            replica.models, replica.serves = models, frozenset(models)
            for model in sorted(changed):
                self._reassign(model)
        self.refresh(replica)

    def down(self, replica: Replica, reason: str) -> None:
        """The replica is not to be used; it keeps its models, and its requests in flight."""
        replica.down_reason = reason
        self.refresh(replica)

    def refresh(self, replica: Replica) -> None:
        """The replica's health or breaker has changed: sort it anew on its routes."""
        for model in replica.models:
            self.routes[model].refresh()
        self.half_open_due_s = min(
            (r.breaker.retry_at_s for r in self if r.down_reason is None), default=math.inf
        )

    def probe(self, replica: Replica) -> int:
        """The ticket for the one attempt that a half-open breaker admits: the replica is taken."""
        ticket = replica.breaker.admit()
        self.refresh(replica)
        return ticket

    def tick(self, now_s: float) -> None:
        """Make the breakers whose time has come half-open."""
        for replica in self:
            if replica.breaker.tick(now_s):
                self.refresh(replica)

    def _reassign(self, model: str) -> None:
        """Find the replicas that serve the model; forget it when none does."""
        route = self.routes.setdefault(model, Route())
        route.serve([replica for replica in self if model in replica.serves])
        if not route.serving:
            del self.routes[model]
            self._fleets.pop(model, None)
