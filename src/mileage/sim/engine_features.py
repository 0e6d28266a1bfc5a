"""Features of engines beyond continuous batching: their settings, in the terms of their costs."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range, require_up_to
from mileage.core.errors import ConfigError
from mileage.policy.residency.choose import ResidencyConfig

__all__ = [
    "AdaptersConfig",
    "DisaggregationConfig",
    "KvLayout",
    "KvTierConfig",
    "SpeculationConfig",
    "StaticBatchConfig",
]

KvLayout: TypeAlias = Literal["paged", "contiguous"]

_STORES = ("evicted", "computed")
_ACCEPTANCES = ("drawn", "expected")


class KvTierConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory behind the GPU's KV cache: of the host, of a disk, of another machine."""

    blocks: int
    """Blocks that it holds."""
    block_load_s: float
    """Time in which its link brings one block to the GPU; loads go one after the other."""
    latency_s: float = 0.0
    """Time from the request for blocks to the first of them."""
    store: Literal["evicted", "computed"] = "evicted"
    """Of the first tier. evicted: a block is copied when the GPU's cache gives it up; computed: as
    soon as it is there. The tiers behind it have what the one before each gives up."""

    def __post_init__(self) -> None:
        require_at_least("engine.kv_tiers.blocks", self.blocks, 1)
        require_range("engine.kv_tiers.block_load_s", self.block_load_s, 0.0, 60.0)
        require_range("engine.kv_tiers.latency_s", self.latency_s, 0.0, 60.0)
        if self.store not in _STORES:
            raise ConfigError("engine.kv_tiers.store", self.store, f"one of {', '.join(_STORES)}")


class StaticBatchConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Batches of requests, as servers made them before continuous batching: the baseline."""

    size: int = 8
    """The most requests of a batch."""
    delay_s: float = 0.1
    """A batch with fewer begins when the first of them has waited so long."""

    def __post_init__(self) -> None:
        require_at_least("engine.static_batch.size", self.size, 1)
        require_range("engine.static_batch.delay_s", self.delay_s, 0.0, 3600.0)


class AdaptersConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """LoRA adapters: which requests can run together, and what they cost."""

    slots: int = 4
    """Adapters on the GPU, and so among the requests that run: vLLM's max_loras."""
    load_s: float = 0.0
    """Time of bringing an adapter from the host to the GPU; the step waits for it."""
    host_slots: int | None = None
    """Adapters in the host's memory: vLLM's max_cpu_loras. None: as many as there are."""
    fetch_s: float = 0.0
    """Time of reading an adapter that is not in the host's memory; the step waits for it."""
    step_s: float = 0.0
    """What each adapter among the requests that run adds to a step: it grows with the rank."""
    residency: ResidencyConfig = ResidencyConfig()
    """Which adapters stay, on the GPU and in the host's memory: `policy` lru (vLLM) or heat."""

    def __post_init__(self) -> None:
        require_at_least("engine.adapters.slots", self.slots, 1)
        for key in ("load_s", "fetch_s", "step_s"):
            require_range(f"engine.adapters.{key}", getattr(self, key), 0.0, 3600.0)
        if self.host_slots is not None:
            require_at_least("engine.adapters.host_slots", self.host_slots, self.slots)


class SpeculationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Speculative decoding: by a draft model, or by the model's own heads (MTP)."""

    draft_tokens: int = 1
    """Tokens that are proposed to each request in each step."""
    acceptance_ratio: float = 0.7
    """Probability that a proposed token is accepted where all before it were. A step then yields
    (1 - a^(k+1)) / (1 - a) tokens of a request on average."""
    draft_step_s: float = 0.0
    """Time that proposing one token for all requests adds to a step; `draft_tokens` times."""
    acceptance: Literal["drawn", "expected"] = "drawn"
    """drawn: each token by lot; expected: every request has the mean in every step, rounded so that
    nothing is lost."""

    def __post_init__(self) -> None:
        require_range("engine.speculation.draft_tokens", self.draft_tokens, 1, 64)
        require_range("engine.speculation.acceptance_ratio", self.acceptance_ratio, 0.0, 1.0)
        require_range("engine.speculation.draft_step_s", self.draft_step_s, 0.0, 60.0)
        if self.acceptance not in _ACCEPTANCES:
            names = ", ".join(_ACCEPTANCES)
            raise ConfigError("engine.speculation.acceptance", self.acceptance, f"one of {names}")

    @property
    def tokens_mean(self) -> float:
        """Tokens of a request that a step yields on average."""
        ratio, most = self.acceptance_ratio, self.draft_tokens + 1
        return float(most) if ratio == 1.0 else (1.0 - ratio**most) / (1.0 - ratio)


class DisaggregationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replica of several engines: some compute prompts only, the others decode."""

    prefill_engines: int = 1
    """Engines that compute prompts, each with the limits and blocks of the whole section."""
    decode_engines: int = 1
    """Engines that decode, likewise."""
    transfer_token_s: float = 0.0
    """Time in which the KV cache of one token goes from the one to the other."""
    transfer_latency_s: float = 0.0
    """Time that each transfer takes besides."""

    def __post_init__(self) -> None:
        require_range("engine.disaggregation.prefill_engines", self.prefill_engines, 1, 1024)
        require_range("engine.disaggregation.decode_engines", self.decode_engines, 1, 1024)
        if self.transfer_token_s:
            key = "engine.disaggregation.transfer_token_s"
            require_up_to(key, self.transfer_token_s, 1.0)
        if self.transfer_latency_s:
            require_positive("engine.disaggregation.transfer_latency_s", self.transfer_latency_s)
