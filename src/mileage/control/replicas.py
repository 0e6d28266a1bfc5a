"""Replicas and the models they serve: who may be sent a request for which model now."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.control.experiment_config import ArmGovernor
from mileage.control.first_limit import first_limit
from mileage.control.replica import Replica
from mileage.control.replica_state import ReplicaState, ReplicaStateName
from mileage.core.request import Endpoint, Request
from mileage.policy.experiment import ArmName
from mileage.policy.limits.choose import make_limit
from mileage.policy.routing import Candidates
from mileage.policy.service_rate import FleetRates

if TYPE_CHECKING:
    from mileage.control.pool import Pool

__all__ = ["Replica", "ReplicaState", "ReplicaStateName", "Replicas", "Route", "Takers"]

_LEFT = "not configured any more"
_OUTPUT_ASSUMED_TOKENS = 128.0
_OUTPUT_GAIN_MIN = 0.05


class Takers:
    """Replicas that can serve a request, and those among them that take one now."""

    __slots__ = ("arms", "closed", "half_open", "loadable", "pool", "serving", "sole")

    def __init__(self) -> None:
        self.arms: tuple[Takers, Takers] | None = None
        """Arm a's of them and arm b's, while an experiment parts them."""
        self.sole: ArmName | None = None
        """The arm that gets all the traffic, if one does."""
        self.pool: Pool | None = None
        """Theirs, once it was looked up; anew after each change."""
        self.serving: tuple[Replica, ...] = ()
        """All that can, also while they are down."""
        self.closed: Candidates[Replica] = Candidates(())
        """Those that take any request now."""
        self.half_open: tuple[Replica, ...] = ()
        """Those that take one request now, as a probe."""
        self.loadable: tuple[Replica, ...] = ()
        """Those that would load the model if they were asked."""

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
        if self.arms is not None:
            for arm in self.arms:
                arm.refresh()

    def divide(self, in_b: Collection[str] | None, ratio: float) -> None:
        """Part them: those of these names are arm b's, which gets that share of the traffic. None:
        there are no arms.

        What is held for the arms that were before is to be placed anew: nothing takes it there.
        """
        for arm in self.arms or ():
            arm.serving = ()
            arm.refresh()
        self.arms = None
        self.sole = "a" if ratio <= 0.0 else "b" if ratio >= 1.0 else None
        if in_b is not None:
            self.arms = (Takers(), Takers())
            self.sort_arms(in_b)

    def sort_arms(self, in_b: Collection[str]) -> None:
        """Others serve now: sort them by arm."""
        for in_arm_b, arm in enumerate(self.arms or ()):
            arm.serving = tuple(r for r in self.serving if (r.name in in_b) == in_arm_b)
            arm.refresh()

    def of_arm(self, arm: ArmName | None) -> Takers:
        """Those of one arm, where an experiment parts them; else all."""
        if self.arms is None or arm is None:
            return self
        return self.arms[(self.sole or arm) == "b"]

    def own_or_all(self, arm: ArmName | None) -> Takers:
        """Those of the arm, if any of them takes requests; else all: rather those of the other arm
        than none."""
        own = self.of_arm(arm)
        return own if own.closed.loads or own.half_open else self


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

    def serve(self, replicas: Sequence[Replica], loadable: Sequence[Replica] = ()) -> None:
        """These have the model now; `loadable` are those that would load it."""
        self.serving, self.loadable = tuple(replicas), tuple(loadable)
        lacked = frozenset[Endpoint]().union(*(r.lacks for r in (*replicas, *loadable)))
        known = self.partial
        # Once there they stay: what is held for them is to see who comes and goes.
        self.partial = {e: known.get(e) or Takers() for e in sorted(lacked | known.keys())}
        for endpoint, takers in self.partial.items():
            takers.serving = tuple(r for r in replicas if endpoint not in r.lacks)
            takers.loadable = tuple(r for r in loadable if endpoint not in r.lacks)
        self.refresh()

    def refresh(self) -> None:
        """Sort the serving replicas by what their health and breakers admit."""
        super().refresh()
        for takers in self.partial.values():
            takers.refresh()


class Replicas:
    """All configured replicas by name, and the routes by model."""

    __slots__ = (
        "_arm_governor",
        "_bit",
        "_by_name",
        "_config",
        "_fleets",
        "_in_b",
        "_ratio",
        "all_in_b",
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
        self._in_b: frozenset[str] | None = None
        self._ratio = 0.0
        self._arm_governor: ArmGovernor | None = None
        self.all_in_b = False
        """An experiment has all of them run what its arm b does, for a slot of time."""
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

    def divide(
        self, in_b: frozenset[str] | None, ratio: float, governor: ArmGovernor | None, now_s: float
    ) -> None:
        """Replicas of these names are arm b's from now on, with that share of the traffic, and run
        its policies; None: all share them, by turns (`all_in_b`), or there is no experiment."""
        before = {replica.name: self.governor_of(replica) for replica in self}
        self._in_b, self._ratio, self._arm_governor, self.all_in_b = in_b, ratio, governor, False
        for replica in self:
            its = self.governor_of(replica)
            if its != before[replica.name]:
                replica.throttle.use(make_limit(its, limit=replica.throttle.limit))
                replica.throttle.order(its, now_s)
        for route in self.routes.values():
            self._divide(route)

    def _divide(self, route: Route) -> None:
        for takers in (route, *route.partial.values()):
            takers.divide(self._in_b, self._ratio)

    def find(self, request: Request) -> tuple[Route, Takers] | None:
        """The route of the request's model, and who serves its endpoint; None: nobody has it."""
        route = self.routes.get(request.model)
        return None if route is None else (route, route.partial.get(request.endpoint, route))

    def governor_of(self, replica: Replica) -> GovernorConfig:
        """What sets the limits of the replica: its arm's, where there is an experiment."""
        governor, arm = self._config.governor, self._arm_governor
        if arm is None or not (self.all_in_b or replica.name in (self._in_b or ())):
            return governor
        return arm.over(governor)

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
            replica.cached.blocks_max = config.routing.prefix_blocks_max
            replica.throttle.told_max(config.replica_running_max.get(replica.name))
            if limits_changed:
                its = self.governor_of(replica)
                replica.throttle.use(make_limit(its, limit=replica.throttle.limit))
                replica.throttle.order(its, now_s)

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
            replica.loadable = frozenset()
            replica.join(FleetRates())  # it says nothing about the others any more
        for model in list(self.routes):
            self._reassign(model)

    def others_seen(self, weights: Mapping[str, int], now_s: float) -> None:
        """So much do other workers have at the replicas."""
        for replica in self:
            replica.meter.set_others(weights.get(replica.name, 0), now_s)

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
            its = self.governor_of(replica)
            replica.throttle.restarted(make_limit(its, limit=limit), limit)
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

    def load(self, replica: Replica, models: Sequence[str]) -> None:
        """The replica loads exactly `models` when asked."""
        self.seen_up = True  # from now on it is known which models there are
        changed = replica.loadable.symmetric_difference(models)
        replica.loadable = frozenset(models)
        for model in sorted(changed):
            self._reassign(model)

    def lost(self, replica: Replica, model: str) -> None:
        """The replica turned out not to have the model, which it loads when asked."""
        if replica.down_reason is None and model in replica.loadable:
            self.up(replica, [name for name in replica.models if name != model])

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
        loadable = [replica for replica in self if model in replica.loadable]
        route.serve([replica for replica in self if model in replica.serves], loadable)
        if self._in_b is not None:
            for takers in (route, *route.partial.values()):
                if takers.arms is None:
                    takers.divide(self._in_b, self._ratio)
                else:
                    takers.sort_arms(self._in_b)
        if not (route.serving or loadable):
            del self.routes[model]
            self._fleets.pop(model, None)
