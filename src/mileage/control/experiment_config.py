"""Configuration of an experiment: what arm b is, who belongs to it, and how it is judged."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeAlias

import msgspec

from mileage.control.config import GovernorConfig, LimitPolicyName
from mileage.core.bounds import require_at_least, require_positive, require_range
from mileage.core.errors import ConfigError
from mileage.policy.experiment import ExperimentSplit, Sticky
from mileage.policy.limits.aimd import AimdConfig
from mileage.policy.limits.mixture import MixtureConfig
from mileage.policy.limits.model import ModelConfig
from mileage.policy.limits.static import StaticConfig
from mileage.policy.limits.tail_memory import TailMemoryConfig
from mileage.policy.limits.utilisation import UtilisationConfig
from mileage.policy.limits.volatility import VolatilityConfig
from mileage.policy.routing import RoutingConfig, RoutingPolicyName

__all__ = ["ArmGovernor", "ArmRouting", "ExperimentConfig", "ExperimentMode", "ExperimentPlan"]

ExperimentMode: TypeAlias = Literal["ab", "canary"]
_NAME_MAX = 64


class ArmGovernor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[experiment.governor]`: what of `[governor]` is otherwise for arm b; the rest is shared."""

    policy: LimitPolicyName | None = None
    """Which policy sets the limits of arm b."""
    static: StaticConfig | None = None
    aimd: AimdConfig | None = None
    volatility: VolatilityConfig | None = None
    utilisation: UtilisationConfig | None = None
    tail_memory: TailMemoryConfig | None = None
    mixture: MixtureConfig | None = None
    model: ModelConfig | None = None

    def over(self, governor: GovernorConfig) -> GovernorConfig:
        """The governor's configuration as arm b has it."""
        return msgspec.structs.replace(governor, **_given(self))


class ArmRouting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[experiment.routing]`: what of `[routing]` is otherwise for arm b; the rest is shared."""

    policy: RoutingPolicyName | None = None
    """Which policy routes the requests of arm b."""
    affinity: bool | None = None
    """Prefer the replica that is likely to hold the prompt's prefix in its cache."""
    affinity_slack_s: float | None = None
    """The preferred replica yields when its predicted wait is longer than the other's by this."""

    def __post_init__(self) -> None:
        if self.affinity_slack_s is not None:
            require_at_least("experiment.routing.affinity_slack_s", self.affinity_slack_s, 0)

    def over(self, routing: RoutingConfig) -> RoutingConfig:
        """The configuration of routing as arm b has it."""
        return msgspec.structs.replace(routing, **_given(self))


def _given(overrides: msgspec.Struct) -> dict[str, object]:
    values = ((name, getattr(overrides, name)) for name in overrides.__struct_fields__)
    return {name: value for name, value in values if value is not None}


class ExperimentPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a controller is told of an experiment (the settings of ExperimentChanged)."""

    split: ExperimentSplit
    replicas: tuple[str, ...] = ()
    governor: ArmGovernor | None = None
    routing: ArmRouting | None = None


class ExperimentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[experiment]`: a part of the live traffic is served in another way, and compared.

    Arm a is what runs anyway; arm b has replicas of its own, or other policies, or both.
    """

    name: str | None = None
    """What the experiment is called; who is in which arm follows from it. Without it there is
    none."""
    mode: ExperimentMode = "ab"
    """ab: the ratio stays, figures are compared; canary: arm b gets more traffic step by step, and
    none any more as soon as it is worse."""
    ratio: float = 0.5
    """Share of the traffic that arm b gets; a canary goes by `steps` instead."""
    sticky: Sticky = "request"
    """What stays together in one arm: request, tenant, or prefix (a tenant's prompts that begin
    alike: conversations)."""
    replicas: tuple[str, ...] = ()
    """Names of the replicas that are arm b's; all others are arm a's. Without any, both arms share
    all replicas, and take turns in slots of time."""
    governor: ArmGovernor | None = None
    """What of `[governor]` arm b has otherwise."""
    routing: ArmRouting | None = None
    """What of `[routing]` arm b has otherwise."""
    seed: int = 0
    """Another seed deals the arms anew."""
    slot_s: float = 60.0
    """Length of a slot of time, where both arms share the replicas."""
    washout_s: float = 5.0
    """After a change of arm, requests that arrive within this time are counted for neither."""
    steps: tuple[float, ...] = (0.05, 0.25, 0.5, 1.0)
    """A canary's shares of the traffic, one after the other."""
    step_requests_min: int = 200
    """Requests of arm b before a canary's next step."""
    step_time_min_s: float = 300.0
    """Time of each step of a canary, at least."""
    block_requests_min: int = 30
    """Requests of each arm in a block of time that is compared, at least."""
    block_s: float = 10.0
    """Length of such a block, at least."""
    tolerance_ratio: float = 0.05
    """A block speaks against arm b where its share of slow requests, or of those that missed their
    targets, is higher than arm a's by more than this."""
    false_alarm_ratio: float = 0.05
    """Chance at most that a canary that is as good as arm a is ever rolled back."""

    def __post_init__(self) -> None:
        if self.name is not None and not 1 <= len(self.name.strip()) <= _NAME_MAX:
            raise ConfigError("experiment.name", self.name, f"1 to {_NAME_MAX} characters")
        require_range("experiment.ratio", self.ratio, 0.0, 1.0)
        require_range("experiment.slot_s", self.slot_s, 1.0, 86_400.0)
        require_range("experiment.washout_s", self.washout_s, 0.0, self.slot_s / 2)
        if not self.steps:
            raise ConfigError("experiment.steps", "(empty)", "one share at least")
        for before, step in zip((0.0, *self.steps), self.steps, strict=False):
            if not before < step <= 1.0:
                expected = "shares that grow, above 0 and at most 1"
                raise ConfigError("experiment.steps", list(self.steps), expected)
        require_range("experiment.step_requests_min", self.step_requests_min, 1, 10**9)
        require_positive("experiment.step_time_min_s", self.step_time_min_s)
        require_range("experiment.block_requests_min", self.block_requests_min, 5, 10**6)
        require_range("experiment.block_s", self.block_s, 1.0, 3600.0)
        require_range("experiment.tolerance_ratio", self.tolerance_ratio, 0.0, 0.5)
        require_range("experiment.false_alarm_ratio", self.false_alarm_ratio, 1e-6, 0.5)
        if self.name is not None and not (self.replicas or self.governor or self.routing):
            expected = "replicas, governor or routing: something in which arm b is different"
            raise ConfigError("experiment.replicas", "(none)", expected)

    def check_replicas(self, known: Collection[str]) -> None:
        """Raises ConfigError where arm b's replicas are not among those of these names, or are all
        of them."""
        for name in self.replicas:
            if name not in known:
                expected = f"names of replicas: {', '.join(known)}"
                raise ConfigError("experiment.replicas", name, expected)
        if self.name is not None and known and set(known) == set(self.replicas):
            expected = "some of the replicas: arm a needs the others"
            raise ConfigError("experiment.replicas", list(self.replicas), expected)

    def plan(self, ratio: float, *, began_s: float) -> ExperimentPlan:
        """What the controllers are told where arm b gets this share; `began_s` is monotonic."""
        assert self.name is not None
        return ExperimentPlan(
            split=ExperimentSplit(
                name=self.name,
                ratio=ratio,
                sticky=self.sticky,
                seed=self.seed,
                slot_s=None if self.replicas else self.slot_s,
                washout_s=self.washout_s,
                began_s=began_s,
            ),
            replicas=self.replicas,
            governor=self.governor,
            routing=self.routing,
        )
