"""Configuration of the attribution of GPU time to requests: section `[attribution]`."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from mileage.core.bounds import require_at_least, require_range
from mileage.core.errors import ConfigError

__all__ = ["AttributionConfig", "WeighedBy"]

WeighedBy: TypeAlias = Literal["measured", "ratios"]
_HOUR_S = 3600
_SUM_ERROR_MAX = 1e-6


class AttributionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the time of each replica's GPUs is shared out to its requests. See
    docs/explanation/attribution.md."""

    enabled: bool = True
    """false: requests are recorded, and have no part of the GPU time."""
    window_s: int = 20
    """Time that is shared out at once; an hour is a whole number of windows. Short ones
    underestimate prompts where only first and last tokens are known."""
    weighed_by: WeighedBy = "measured"
    """measured: how much of a step is computing, and how much reading memory, is what the replica's
    own steps show, else its GPU counters, else the ratios below; ratios: these, always."""
    compute_ratio: float = 0.7
    """Part of a step's time that is shared by tokens computed: prompts without what was cached,
    and answers."""
    memory_ratio: float = 0.3
    """Part that is shared by the tokens of context that were read and held in the KV cache."""
    interconnect_ratio: float = 0.0
    """Part that is shared by the tokens whose activations went from GPU to GPU. The three sum
    to 1."""
    decode_cost_tokens: float = 5.0
    """What a token of an answer computes, in tokens of prompts, where the ratios hold."""
    token_events_max: int = 2_000_000
    """Token times of one replica and window that are looked at; beyond, its shares rest on first
    and last tokens."""
    wait_max_s: float = 3600.0
    """A window waits so long for the requests in it to end; then it is settled without them."""

    def __post_init__(self) -> None:
        if not 1 <= self.window_s <= _HOUR_S or _HOUR_S % self.window_s:
            expected = "seconds of which an hour is a whole multiple, 1 to 3600"
            raise ConfigError("attribution.window_s", self.window_s, expected)
        if self.weighed_by not in ("measured", "ratios"):
            raise ConfigError("attribution.weighed_by", self.weighed_by, "measured or ratios")
        ratios = (self.compute_ratio, self.memory_ratio, self.interconnect_ratio)
        names = ("compute_ratio", "memory_ratio", "interconnect_ratio")
        for name, ratio in zip(names, ratios, strict=True):
            require_range(f"attribution.{name}", ratio, 0.0, 1.0)
        if abs(sum(ratios) - 1.0) > _SUM_ERROR_MAX:
            expected = "a sum of 1 with memory_ratio and interconnect_ratio"
            raise ConfigError("attribution.compute_ratio", self.compute_ratio, expected)
        require_range("attribution.decode_cost_tokens", self.decode_cost_tokens, 0.01, 1000.0)
        require_at_least("attribution.token_events_max", self.token_events_max, 0)
        require_range("attribution.wait_max_s", self.wait_max_s, 0.0, 7 * 86400.0)
