"""EngineConfig: what one simulated engine can do, in the terms of its real flags."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_at_least, require_range
from mileage.core.errors import ConfigError
from mileage.policy.eviction.choose import EvictionConfig
from mileage.policy.prefill import PrefillConfig
from mileage.sim.engine_features import (
    AdaptersConfig,
    DisaggregationConfig,
    KvLayout,
    KvTierConfig,
    SpeculationConfig,
    StaticBatchConfig,
)

__all__ = ["EngineConfig"]


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One replica. Raises ConfigError for figures that cannot be."""

    kv_blocks: int
    """Blocks of the KV cache."""
    running_max: int = 256
    """Requests that run at once: vLLM's max_num_seqs."""
    step_tokens_max: int = 2048
    """Tokens of one step: vLLM's max_num_batched_tokens; of all batches that are in a pipeline."""
    block_tokens: int = 16
    """Tokens of a block of the KV cache."""
    long_prefill_tokens_max: int | None = None
    """The most prompt tokens of one request in one step: long_prefill_token_threshold."""
    chunked_prefill: bool = True
    """Prompts are cut where a step has no more tokens. False: a prompt waits until all of it fits
    into one step, as with vLLM's --no-enable-chunked-prefill; contexts of more than
    `step_tokens_max` tokens are refused."""
    prefix_cache: bool = True
    """Blocks of earlier prompts are found again."""
    whole_prompt_fits: bool = True
    """A request begins only when all of its prompt fits into the free blocks, although its chunks
    take them one by one: vLLM's scheduler_reserve_full_isl. False: when its first chunk fits."""
    watermark_ratio: float = 0.0
    """Share of the blocks that a request leaves free when it begins beside others."""
    prefill: PrefillConfig | None = None
    """Policies inside the engine that decide what is prefilled when. None: first come, first
    served, as many tokens as fit into a step."""
    noise_ratio: float = 0.0
    """Standard deviation of a step's time over its mean, cut at three of them."""
    eviction: EvictionConfig | None = None
    """Which blocks of the prefix cache are overwritten first. None: the least recently given back,
    as vLLM does it."""
    kv_tiers: tuple[KvTierConfig, ...] = ()
    """Memory behind the GPU's KV cache, the nearest first."""
    adapters: AdaptersConfig | None = None
    """What LoRA adapters cost. None: nothing, and any number of them run together."""
    kv_layout: KvLayout = "paged"
    """contiguous: each request has room for `context_tokens_max` tokens from its begin to its end,
    without a prefix cache: the baseline that paging is measured against."""
    context_tokens_max: int | None = None
    """The longest context of a request; only where KV caches are contiguous."""
    static_batch: StaticBatchConfig | None = None
    """Batches that nobody joins, and that last as long as their longest answer. None: continuous
    batching."""
    speculation: SpeculationConfig | None = None
    """Speculative decoding, also by multi-token prediction. None: a token per step."""
    disaggregation: DisaggregationConfig | None = None
    """Prompts are computed by other engines than those that decode. None: by the same one."""
    dp_ranks: int = 1
    """Ranks of attention that step together, each with requests and KV blocks of its own: all
    figures above are those of all ranks together, and each has an equal share of them."""

    def __post_init__(self) -> None:
        require_at_least("engine.kv_blocks", self.kv_blocks, 1)
        require_at_least("engine.running_max", self.running_max, 1)
        require_at_least("engine.step_tokens_max", self.step_tokens_max, 1)
        require_at_least("engine.block_tokens", self.block_tokens, 1)
        if self.long_prefill_tokens_max is not None:
            require_at_least("engine.long_prefill_tokens_max", self.long_prefill_tokens_max, 1)
        require_range("engine.watermark_ratio", self.watermark_ratio, 0.0, 0.9)
        require_range("engine.noise_ratio", self.noise_ratio, 0.0, 0.3)
        if self.rows_max > self.step_tokens_max:
            expected = f"at most step_tokens_max ({self.step_tokens_max}): each decodes every step"
            if self.speculation is not None:
                expected += f" and takes {self.speculation.draft_tokens + 1} of its tokens"
            raise ConfigError("engine.running_max", self.running_max, expected)
        self._check_layout()
        self._check_ranks()
        self._check_together()

    def _check_layout(self) -> None:
        if self.kv_layout not in ("paged", "contiguous"):
            raise ConfigError("engine.kv_layout", self.kv_layout, "paged or contiguous")
        most = self.context_tokens_max
        if self.kv_layout == "paged":
            if most is not None:
                expected = "no value where the KV cache is paged"
                raise ConfigError("engine.context_tokens_max", most, expected)
            return
        tokens = self.kv_blocks * self.block_tokens
        if most is None or not 1 <= most <= tokens:
            expected = f"1 to {tokens}, as many tokens as the KV cache has"
            raise ConfigError("engine.context_tokens_max", most, expected)

    def _check_ranks(self) -> None:
        require_at_least("engine.dp_ranks", self.dp_ranks, 1)
        for key in ("kv_blocks", "running_max", "step_tokens_max"):
            if getattr(self, key) < self.dp_ranks:
                expected = f"at least 1 for each of {self.dp_ranks} dp_ranks"
                raise ConfigError(f"engine.{key}", getattr(self, key), expected)

    def _check_together(self) -> None:
        """Refuse features that change the same thing."""
        kinds = {
            "prefill": self.prefill is not None,
            "static_batch": self.static_batch is not None,
            "speculation": self.speculation is not None,
            "disaggregation": self.disaggregation is not None,
            "dp_ranks": self.dp_ranks > 1,
        }
        chosen = [key for key, used in kinds.items() if used]
        if len(chosen) > 1:
            expected = f"not together with {chosen[0]}"
            raise ConfigError(f"engine.{chosen[1]}", getattr(self, chosen[1]), expected)
        contiguous = self.kv_layout == "contiguous"
        own = self.prefill is not None or self.static_batch is not None
        whole, limited = not self.chunked_prefill, self.long_prefill_tokens_max is not None
        for key, used, barred, other in (
            ("eviction", self.eviction is not None, contiguous, "contiguous KV caches"),
            ("eviction", self.eviction is not None, not self.prefix_cache, "no prefix_cache"),
            ("eviction", self.eviction is not None, own, "prefill or static_batch"),
            ("kv_tiers", bool(self.kv_tiers), contiguous, "contiguous KV caches"),
            ("kv_tiers", bool(self.kv_tiers), not self.prefix_cache, "no prefix_cache"),
            ("kv_tiers", bool(self.kv_tiers), own, "prefill or static_batch"),
            ("adapters", self.adapters is not None, own, "prefill or static_batch"),
            ("chunked_prefill", whole, own, "prefill or static_batch"),
            ("chunked_prefill", whole, bool(self.kv_tiers), "kv_tiers"),
            ("chunked_prefill", whole, limited, "long_prefill_tokens_max"),
        ):
            if used and barred:
                raise ConfigError(f"engine.{key}", getattr(self, key), f"not with {other}")

    @property
    def rows_max(self) -> int:
        """The most tokens that a step decodes: so many requests a step table has to have."""
        each = 1 if self.speculation is None else self.speculation.draft_tokens + 1
        return self.running_max * each

    @property
    def as_paged(self) -> EngineConfig:
        """A contiguous KV cache is one whose pages have room for the longest context."""
        if self.kv_layout == "paged" or self.context_tokens_max is None:
            return self
        slots = self.kv_blocks * self.block_tokens // self.context_tokens_max
        return msgspec.structs.replace(
            self, kv_blocks=slots, block_tokens=self.context_tokens_max, prefix_cache=False
        )
