"""Arms of the policies' benchmark: what stands before an engine, and how that engine is set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.support.policy_cells import SLO, Cell, Pairing
from mileage.control.config import ControlConfig, GovernorConfig, LimitPolicyName
from mileage.core.slo import SloConfig
from mileage.policy.budget.model import ModelBudgetConfig
from mileage.policy.limits.model import ModelConfig
from mileage.policy.prefill import PrefillConfig
from mileage.sim.engine_config import EngineConfig
from mileage.sim.node import ReplicaSpec

__all__ = [
    "MODEL_ARM",
    "MODEL_MEAN_ARM",
    "NOISE_RATIO",
    "Arm",
    "default_arm",
    "policy_arm",
    "static_arm",
]

NOISE_RATIO = 0.03


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run a cell. `policy` None: requests go to the engine as they come."""

    step_tokens: int
    running: int
    long_prefill_tokens: int | None = None
    policy: LimitPolicyName | None = None
    inside: bool = False
    """The engine has policies of its own: `model`'s budget and order of prompts."""
    itl: Literal["p99", "mean"] = "p99"
    """What of a request's gaps these are told that the ITL target is for."""

    def replica(self, cell: Cell) -> ReplicaSpec:
        """The engine."""
        model = ModelBudgetConfig(itl=self.itl)
        config = EngineConfig(
            kv_blocks=cell.pairing.kv_blocks(self.step_tokens, self.running),
            running_max=self.running,
            step_tokens_max=self.step_tokens,
            long_prefill_tokens_max=self.long_prefill_tokens,
            noise_ratio=NOISE_RATIO,
            prefill=PrefillConfig(slo=SLO, model=model) if self.inside else None,
        )
        return ReplicaSpec(name="replica", engine=config, table=cell.table)

    def control(self) -> ControlConfig:
        """What stands before it."""
        if self.policy is None:
            return ControlConfig(governor=GovernorConfig(mode="off"))
        targets = {name: getattr(SLO, name) for name in SLO.__struct_fields__}
        inside = ModelConfig(engine_policies=self.inside)
        governor = GovernorConfig(policy=self.policy, model=inside)
        return ControlConfig(governor=governor, slo=SloConfig(**targets))

    def __str__(self) -> str:
        long = f", long {self.long_prefill_tokens}" if self.long_prefill_tokens else ""
        return f"{self.step_tokens}/{self.running}{long}"


def default_arm(pairing: Pairing) -> Arm:
    """The engine as vLLM sets it up there, and nothing before it."""
    return Arm(pairing.step_tokens, pairing.running)


def static_arm(
    step_tokens: int, running: int, *, rejecting: bool = False, long_prefill: int | None = None
) -> Arm:
    """Fixed limits; `rejecting`: the governor holds to the same limit, and refuses what is late."""
    return Arm(step_tokens, running, long_prefill, "static" if rejecting else None)


def policy_arm(policy: LimitPolicyName, pairing: Pairing, *, step_tokens: int) -> Arm:
    """One of the governor's policies before an engine that has none: it sets the limit, and refuses
    what is late."""
    return Arm(step_tokens, min(pairing.running, step_tokens), None, policy)


MODEL_ARM = Arm(2048, 256, None, "model", inside=True)
"""`model` in the gateway and in the engine: the same in every cell."""
MODEL_MEAN_ARM = replace(MODEL_ARM, itl="mean")
"""The same where the target is for the mean of a request's gaps."""
