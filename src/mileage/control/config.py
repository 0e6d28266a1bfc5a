"""Configuration of the controller: one document, complete, that a journal can hold."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range
from mileage.core.errors import ConfigError, MileageError
from mileage.core.request import Endpoint
from mileage.core.slo import SloConfig
from mileage.policy.breaker import BreakerConfig
from mileage.policy.limits.aimd import AimdConfig
from mileage.policy.limits.mixture import MixtureConfig
from mileage.policy.limits.model import ModelConfig
from mileage.policy.limits.static import StaticConfig
from mileage.policy.limits.tail_memory import TailMemoryConfig
from mileage.policy.limits.utilisation import UtilisationConfig
from mileage.policy.limits.volatility import VolatilityConfig
from mileage.policy.merging import MergingConfig
from mileage.policy.routing import RoutingConfig
from mileage.policy.tenants import TenantLimits

__all__ = [
    "ControlConfig",
    "CostsConfig",
    "GovernorConfig",
    "GovernorMode",
    "LimitPolicyName",
    "LoadsConfig",
    "TokenPrice",
    "config_of",
]

_USD_MAX = 1e6
"""No GPU-hour and no million tokens cost more; sums of more could overflow."""
GovernorMode: TypeAlias = Literal["act", "observe", "off"]
LimitPolicyName: TypeAlias = Literal[
    "static", "aimd", "volatility", "utilisation", "tail_memory", "mixture", "model"
]


class GovernorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[governor]`: how many requests run at once, and which wait or are refused."""

    mode: GovernorMode = "act"
    """act; observe: change nothing and count what it would have done; off: no limits, no queue."""
    policy: LimitPolicyName = "model"
    """Which policy sets the limit of each replica."""
    limit_min: int = 1
    """Requests that a replica may always run at once."""
    limit_max: int = 1024
    """The most that a replica may run at once; the engine's own limit holds where it is known."""
    period_s: float = 0.5
    """Time between two decisions about a replica's limit."""
    queue_max: int = 10_000
    """Requests held at once. Past it the last ones of the tenant are refused that has most waiting
    for its weight: nobody can keep others out of the queue."""
    queue_wait_max_s: float = 60.0
    """The longest that a request is held where it has no TTFT target."""
    reject_late: bool = True
    """Refuse a request at once, and again at the head of the queue, when it would miss its target
    for the time to first token. False: only the order follows the targets."""
    fair_slack_s: float = 0.5
    """Deadlines decide the order among tenants as long as none is ahead of its share by more than
    this much engine time."""
    static: StaticConfig = StaticConfig()
    aimd: AimdConfig = AimdConfig()
    volatility: VolatilityConfig = VolatilityConfig()
    utilisation: UtilisationConfig = UtilisationConfig()
    tail_memory: TailMemoryConfig = TailMemoryConfig()
    mixture: MixtureConfig = MixtureConfig()
    model: ModelConfig = ModelConfig()

    def __post_init__(self) -> None:
        require_range("governor.limit_min", self.limit_min, 1, 100_000)
        require_range("governor.limit_max", self.limit_max, self.limit_min, 100_000)
        require_range("governor.period_s", self.period_s, 0.01, 60.0)
        require_range("governor.queue_max", self.queue_max, 0, 1_000_000)
        require_positive("governor.queue_wait_max_s", self.queue_wait_max_s)
        require_at_least("governor.fair_slack_s", self.fair_slack_s, 0.0)


class LoadsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[loads]`: requests that are held while their model, or adapter, is loaded."""

    queue_max: int = 1000
    """Requests held for one model in a worker; more are refused."""
    wait_max_s: float = 300.0
    """The longest that a request is held so. Its targets count from when the model is there."""

    def __post_init__(self) -> None:
        require_range("loads.queue_max", self.queue_max, 1, 1_000_000)
        require_positive("loads.wait_max_s", self.wait_max_s)


class TokenPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[costs.models."NAME"]`: a public price, for budgets in USD."""

    prompt_usd_per_mtok: float
    """USD per million prompt tokens."""
    output_usd_per_mtok: float
    """USD per million output tokens."""
    cached_usd_per_mtok: float | None = None
    """USD per million prompt tokens out of a prefix cache; as the others where absent."""

    def __post_init__(self) -> None:
        for key in ("prompt_usd_per_mtok", "output_usd_per_mtok", "cached_usd_per_mtok"):
            value = getattr(self, key)
            if value is not None:
                require_range(f"costs.models.*.{key}", value, 0.0, _USD_MAX)


class CostsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[costs]`: what a request costs its tenant's budget."""

    usd_per_gpu_hour: float | None = None
    """Price of one GPU of any replica for one hour: what a budget in USD is counted by, for models
    without a price of their own."""
    models: dict[str, TokenPrice] = {}

    def __post_init__(self) -> None:
        if self.usd_per_gpu_hour is not None:
            require_range("costs.usd_per_gpu_hour", self.usd_per_gpu_hour, 0.0, _USD_MAX)


class ControlConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that the controller decides by. `replica_gpus`: GPUs of each replica, 1 where absent;
    `replica_running_max`: requests that an engine runs at once, of those that do not tell.

    `replicas` are all replicas by name, and `lacks` the endpoints that some do not have; where it
    is None, those that the controller has stay.
    """

    routing: RoutingConfig = RoutingConfig()
    breaker: BreakerConfig = BreakerConfig()
    governor: GovernorConfig = GovernorConfig()
    slo: SloConfig = SloConfig()
    merging: MergingConfig = MergingConfig()
    costs: CostsConfig = CostsConfig()
    loads: LoadsConfig = LoadsConfig()
    tenants: dict[str, TenantLimits] = {}
    replica_gpus: dict[str, float] = {}
    replica_running_max: dict[str, int] = {}
    replicas: tuple[str, ...] | None = None
    lacks: dict[str, tuple[Endpoint, ...]] = {}

    def __post_init__(self) -> None:
        for name, tenant in self.tenants.items():
            if self.costs.usd_per_gpu_hour is None and any(b.unit == "usd" for b in tenant.budgets):
                expected = (
                    "a price: a budget in USD needs it for models that have none of their own"
                )
                raise ConfigError("costs.usd_per_gpu_hour", None, f"{expected} (tenants.{name})")


_decode = msgspec.json.Decoder(ControlConfig).decode


def config_of(settings: str) -> ControlConfig | None:
    """The configuration in a JSON document; None where that is none."""
    try:
        return _decode(settings)
    except (msgspec.DecodeError, MileageError):
        return None
