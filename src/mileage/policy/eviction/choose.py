"""Which policy ranks the blocks: from its name to a fresh object."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from mileage.core.errors import ConfigError
from mileage.policy.eviction.lru import LruEviction
from mileage.policy.eviction.lru_k_heat import LruKHeatConfig, LruKHeatEviction
from mileage.policy.eviction.policy import EvictionPolicy
from mileage.policy.eviction.return_aware import ReturnAwareConfig, ReturnAwareEviction

__all__ = ["EVICTION_POLICIES", "EvictionConfig", "make_eviction"]


class EvictionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a prefix cache evicts. Raises ConfigError for what cannot be."""

    policy: str = "return_aware"
    """One of lru, lru_k_heat, return_aware."""
    lru_k_heat: LruKHeatConfig = LruKHeatConfig()
    """Settings of the policy `lru_k_heat`."""
    return_aware: ReturnAwareConfig = ReturnAwareConfig()
    """Settings of the policy `return_aware`."""

    def __post_init__(self) -> None:
        if self.policy not in EVICTION_POLICIES:
            names = ", ".join(EVICTION_POLICIES)
            raise ConfigError("eviction.policy", self.policy, f"one of {names}")


EVICTION_POLICIES: Mapping[str, Callable[[EvictionConfig, int], EvictionPolicy]] = {
    "lru": lambda config, blocks_max: LruEviction(),
    "lru_k_heat": lambda config, blocks_max: LruKHeatEviction(config.lru_k_heat),
    "return_aware": lambda config, n: ReturnAwareEviction(config.return_aware, blocks_max=n),
}


def make_eviction(config: EvictionConfig, *, blocks_max: int) -> EvictionPolicy:
    """The configured policy, for one cache of so many blocks."""
    return EVICTION_POLICIES[config.policy](config, blocks_max)
