"""EngineConfig: what one simulated engine can do, in the terms of its real flags."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_at_least

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

    def __post_init__(self) -> None:
        require_at_least("engine.kv_blocks", self.kv_blocks, 1)
        require_at_least("engine.running_max", self.running_max, 1)
        require_at_least("engine.step_tokens_max", self.step_tokens_max, 1)
        require_at_least("engine.block_tokens", self.block_tokens, 1)
        if self.long_prefill_tokens_max is not None:
            require_at_least("engine.long_prefill_tokens_max", self.long_prefill_tokens_max, 1)
