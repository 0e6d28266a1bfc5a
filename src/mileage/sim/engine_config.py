"""EngineConfig: what one simulated engine can do, in the terms of its real flags."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_at_least, require_range
from mileage.core.errors import ConfigError
from mileage.policy.prefill import PrefillConfig

__all__ = ["EngineConfig"]


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One replica. Raises ConfigError for figures that cannot be."""

    kv_blocks: int
    """Blocks of the KV cache."""
    running_max: int = 256
    """Requests that run at once: vLLM's max_num_seqs."""
    step_tokens_max: int = 2048
    """Tokens of one step: vLLM's max_num_batched_tokens."""
    block_tokens: int = 16
    """Tokens of a block of the KV cache."""
    long_prefill_tokens_max: int | None = None
    """The most prompt tokens of one request in one step: long_prefill_token_threshold."""
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

    def __post_init__(self) -> None:
        require_at_least("engine.kv_blocks", self.kv_blocks, 1)
        require_at_least("engine.running_max", self.running_max, 1)
        require_at_least("engine.step_tokens_max", self.step_tokens_max, 1)
        require_at_least("engine.block_tokens", self.block_tokens, 1)
        if self.long_prefill_tokens_max is not None:
            require_at_least("engine.long_prefill_tokens_max", self.long_prefill_tokens_max, 1)
        require_range("engine.watermark_ratio", self.watermark_ratio, 0.0, 0.9)
        require_range("engine.noise_ratio", self.noise_ratio, 0.0, 0.3)
        if self.running_max > self.step_tokens_max:
            expected = f"at most step_tokens_max ({self.step_tokens_max}): each decodes every step"
            raise ConfigError("engine.running_max", self.running_max, expected)
