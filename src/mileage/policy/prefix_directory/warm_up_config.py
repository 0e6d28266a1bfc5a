"""WarmUpConfig: whether and how a restarted engine's prefix cache is filled again."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_positive, require_range

__all__ = ["WarmUpConfig"]


class WarmUpConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[warm_up]`: the hottest prefixes of an engine that lost its cache are sent to it
    again, as prompts of token ids, while it has nothing else to do.

    For engines with `kv_events_url` and one rank. Token ids of prompts are then in the gateway's
    memory, never on disk or in a log; those with a cache salt, an adapter or media are left out.
    """

    enabled: bool = False
    """Remember prefixes, and send them after a restart."""
    memory_bytes: int = 16 * 1024 * 1024
    """Of what is remembered for each engine; the coldest goes first."""
    half_life_s: float = 600.0
    """After so long a hit counts half."""
    tokens_max: int = 200_000
    """That an engine computes for one warm-up."""
    chunk_tokens: int = 8192
    """Between two looks at its load."""
    tokens_per_s: float = 10_000.0
    """At most, on average over each chunk."""
    running_max: int = 0
    """While it runs more requests than that, or has any waiting, the warm-up pauses."""
    heat_ratio: float = 0.8
    """It ends when so much of the heat that there was is in the cache again."""
    max_s: float = 600.0
    """It ends after that in any case."""

    def __post_init__(self) -> None:
        require_range("warm_up.memory_bytes", self.memory_bytes, 1 << 16, 1 << 34)
        require_positive("warm_up.half_life_s", self.half_life_s)
        require_range("warm_up.tokens_max", self.tokens_max, 1, 1 << 30)
        require_range("warm_up.chunk_tokens", self.chunk_tokens, 1, 1 << 20)
        require_positive("warm_up.tokens_per_s", self.tokens_per_s)
        require_range("warm_up.running_max", self.running_max, 0, 100_000)
        require_range("warm_up.heat_ratio", self.heat_ratio, 0.0, 1.0)
        require_positive("warm_up.max_s", self.max_s)
