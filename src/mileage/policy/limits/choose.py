"""Which policy sets the limit: from its name in the configuration to a fresh object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from mileage.policy.limits.aimd import AimdConfig, AimdLimit
from mileage.policy.limits.bounds import LimitBounds
from mileage.policy.limits.limit import LimitPolicy
from mileage.policy.limits.mixture import MixtureConfig, MixtureLimit
from mileage.policy.limits.model import ModelConfig, ModelLimit
from mileage.policy.limits.static import StaticConfig, StaticLimit
from mileage.policy.limits.tail_memory import TailMemoryConfig, TailMemoryLimit
from mileage.policy.limits.utilisation import UtilisationConfig, UtilisationLimit
from mileage.policy.limits.volatility import VolatilityConfig, VolatilityLimit

__all__ = ["LIMIT_POLICIES", "LimitConfigs", "make_limit"]


class LimitConfigs(Protocol):
    """What is needed of the governor's configuration: the policy's name, bounds, each policy's."""

    @property
    def policy(self) -> str: ...
    @property
    def limit_min(self) -> int: ...
    @property
    def limit_max(self) -> int: ...
    @property
    def static(self) -> StaticConfig: ...
    @property
    def aimd(self) -> AimdConfig: ...
    @property
    def volatility(self) -> VolatilityConfig: ...
    @property
    def utilisation(self) -> UtilisationConfig: ...
    @property
    def tail_memory(self) -> TailMemoryConfig: ...
    @property
    def mixture(self) -> MixtureConfig: ...
    @property
    def model(self) -> ModelConfig: ...


LIMIT_POLICIES: Mapping[str, Callable[[LimitConfigs, int, LimitBounds], LimitPolicy]] = {
    "static": lambda c, limit, bounds: StaticLimit(c.static, limit=limit, bounds=bounds),
    "aimd": lambda c, limit, bounds: AimdLimit(c.aimd, limit=limit, bounds=bounds),
    "volatility": lambda c, n, bounds: VolatilityLimit(c.volatility, limit=n, bounds=bounds),
    "utilisation": lambda c, n, bounds: UtilisationLimit(c.utilisation, limit=n, bounds=bounds),
    "tail_memory": lambda c, n, bounds: TailMemoryLimit(c.tail_memory, limit=n, bounds=bounds),
    "mixture": lambda c, n, bounds: MixtureLimit(c.mixture, limit=n, bounds=bounds),
    "model": lambda c, n, bounds: ModelLimit(c.model, limit=n, bounds=bounds),
}


def make_limit(config: LimitConfigs, *, limit: int) -> LimitPolicy:
    """A policy for one replica, as configured; it begins with `limit`.

    The name is one of `LIMIT_POLICIES`: the configuration checks it.
    """
    bounds = LimitBounds(config.limit_min, config.limit_max)
    return LIMIT_POLICIES[config.policy](config, limit, bounds)
