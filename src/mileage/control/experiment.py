"""Experiment: the two arms of a live experiment: who belongs to which, and what each runs on."""

from __future__ import annotations

import math
from random import Random

import msgspec

from mileage.control.config import ControlConfig
from mileage.control.experiment_config import ExperimentPlan
from mileage.control.flight import Flight
from mileage.control.replicas import Replicas, Takers
from mileage.core.request import Request
from mileage.policy.experiment import ArmName, arm_of, slot_at
from mileage.policy.limits.choose import make_limit
from mileage.policy.limits.limit import LimitPolicy
from mileage.policy.routing import Router

__all__ = ["ArmSeen", "Experiment", "changed"]


class ArmSeen(msgspec.Struct, frozen=True, gc=False):
    """The arm of a request in the experiment of that name. `counted` False: it came right after a
    change of arm, and tells of neither."""

    arm: ArmName
    counted: bool
    experiment: str


class Experiment:
    """Parts the traffic of one controller by a plan, until `end`.

    Where arm b has replicas of its own, each arm's requests go to its own replicas, and to the
    other's only where none of its own takes any. Where it has none, both share all replicas in
    turns: with each slot of time the replicas get the limit policies of its arm, which keep what
    they have learned for their next turn.
    """

    __slots__ = ("_arm", "_config", "_others", "_replicas", "_router_b", "due_s", "plan")

    def __init__(
        self,
        plan: ExperimentPlan,
        config: ControlConfig,
        replicas: Replicas,
        random: Random,
        now_s: float,
    ) -> None:
        self._replicas, self._config = replicas, config
        self._router_b = Router(config.routing, random)
        self._others: dict[str, LimitPolicy] = {}
        self._arm: ArmName = "a"
        self.due_s = -math.inf if plan.split.slot_s is not None else math.inf
        """When the next slot begins; never, where both arms run at the same time."""
        self.plan = plan
        self._divide(now_s)
        self.reconfigure(config)
        self.turn(now_s)

    def _divide(self, now_s: float) -> None:
        plan = self.plan
        in_b = frozenset(plan.replicas) if self.parted else None
        self._replicas.divide(in_b, plan.split.ratio, plan.governor, now_s)

    @property
    def by_prefix(self) -> bool:
        """Arm b's requests are routed by the blocks of their prompts."""
        return self.plan.routing is not None and self.plan.routing.policy == "prefix"

    @property
    def parted(self) -> bool:
        """Each arm has replicas of its own, and both run at the same time."""
        return self.plan.split.slot_s is None

    def replan(self, plan: ExperimentPlan, now_s: float) -> bool:
        """Go on by this plan, where only the split is another; False: it is another experiment."""
        mine = msgspec.structs.replace(self.plan, split=plan.split)
        if mine != plan or self.parted != (plan.split.slot_s is None):
            return False
        self.plan = plan
        if self.parted:
            self._divide(now_s)
        else:
            self.due_s = -math.inf
        self.turn(now_s)
        return True

    def reconfigure(self, config: ControlConfig) -> None:
        """The configuration that both arms share is another."""
        self._config = config
        routing = self.plan.routing
        self._router_b.reconfigure(
            config.routing if routing is None else routing.over(config.routing)
        )
        self._others.clear()

    def end(self, now_s: float) -> None:
        """There are no arms any more: all replicas run what arm a does."""
        if self._arm == "b":
            self._swap("a", now_s)
        self.due_s = math.inf
        self._replicas.divide(None, 0.0, None, now_s)

    # --- one request --------------------------------------------------------------------------

    def seen(self, request: Request, takers: Takers) -> ArmSeen | None:
        """The request's arm; None: its model is served in one arm only, so it belongs to none."""
        split = self.plan.split
        if split.slot_s is not None:
            slot = slot_at(split, request.arrived_s)
            return ArmSeen(slot.arm, slot.counted, split.name)
        arms = takers.arms
        if arms is None or not (arms[0].serving and arms[1].serving):
            return None
        return ArmSeen(arm_of(split, request), True, split.name)

    def assign(self, request: Request, takers: Takers) -> tuple[Request, Takers, ArmName | None]:
        """The request with keys that only its arm shares, its arm's replicas, and its arm."""
        seen = self.seen(request, takers)
        if seen is None:
            return request, takers, None
        arm, merge_key, batch_key = seen.arm, request.merge_key, request.batch_key
        if merge_key is not None or batch_key is not None:
            mark = f"\0{self.plan.split.name}\0{arm}"
            request = msgspec.structs.replace(
                request,
                merge_key=None if merge_key is None else merge_key + mark,
                batch_key=None if batch_key is None else batch_key + mark,
            )
        return request, takers.own_or_all(arm), arm

    def is_crossed(self, seen: ArmSeen, replica: str | None) -> bool:
        """Whether a request of this arm was answered by a replica of the other one."""
        if not self.parted or replica is None:
            return False
        return (replica in self.plan.replicas) != (seen.arm == "b")

    def router(self, flight: Flight, shared: Router) -> Router:
        """What routes the request."""
        return self._router_b if flight.arm == "b" else shared

    # --- slots --------------------------------------------------------------------------------

    def turn(self, now_s: float) -> bool:
        """Where arms take turns and the next slot has begun: give the replicas the policies of its
        arm. True: they have others now."""
        if self.parted or now_s < self.due_s:
            return False
        slot = slot_at(self.plan.split, now_s)
        self.due_s = slot.ends_s
        if slot.arm == self._arm:
            return False
        self._swap(slot.arm, now_s)
        return True

    def _swap(self, arm: ArmName, now_s: float) -> None:
        self._arm = arm
        self._replicas.all_in_b = arm == "b"
        if self.plan.governor is None:
            return
        others, self._others = self._others, {}
        for replica in self._replicas:
            throttle, governor = replica.throttle, self._replicas.governor_of(replica)
            self._others[replica.name] = throttle.policy
            kept = others.get(replica.name)
            throttle.use(kept or make_limit(governor, limit=throttle.limit))
            throttle.order(governor, now_s)

    def forget(self, replica: str) -> None:
        """Perhaps it is another engine under the name: what was learned of it says nothing."""
        self._others.pop(replica, None)


def changed(
    current: Experiment | None,
    settings: str,
    config: ControlConfig,
    replicas: Replicas,
    random: Random,
    now_s: float,
) -> Experiment | None:
    """The experiment by other settings (see ExperimentChanged); the current one goes on where only
    its split is another. Raises msgspec.DecodeError, or a MileageError, for settings that are none.
    """
    plan = msgspec.json.decode(settings, type=ExperimentPlan) if settings else None
    if plan is not None and current is not None and current.replan(plan, now_s):
        return current
    if current is not None:
        current.end(now_s)
    return None if plan is None else Experiment(plan, config, replicas, random, now_s)
