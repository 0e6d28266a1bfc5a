"""Which policy decides which adapters stay: from its name to a fresh object."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from mileage.core.errors import ConfigError
from mileage.policy.residency.heat import HeatConfig, HeatResidency
from mileage.policy.residency.lru import LruResidency
from mileage.policy.residency.policy import ResidencyPolicy

__all__ = ["RESIDENCY_POLICIES", "ResidencyConfig", "make_residency"]


class ResidencyConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which LoRA adapters stay. Raises ConfigError for what cannot be."""

    policy: str = "lru"
    """One of lru, heat."""
    heat: HeatConfig = HeatConfig()
    """Settings of the policy `heat`."""

    def __post_init__(self) -> None:
        if self.policy not in RESIDENCY_POLICIES:
            names = ", ".join(RESIDENCY_POLICIES)
            raise ConfigError("residency.policy", self.policy, f"one of {names}")


RESIDENCY_POLICIES: Mapping[str, Callable[[ResidencyConfig], ResidencyPolicy]] = {
    "lru": lambda config: LruResidency(),
    "heat": lambda config: HeatResidency(config.heat),
}


def make_residency(config: ResidencyConfig) -> ResidencyPolicy:
    """The configured policy, for one engine."""
    return RESIDENCY_POLICIES[config.policy](config)
