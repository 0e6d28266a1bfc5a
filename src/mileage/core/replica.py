"""ReplicaView: one dated observation of one engine replica; Adapter: a model made of another."""

from __future__ import annotations

import msgspec

__all__ = ["Adapter", "ReplicaView"]


class Adapter(msgspec.Struct, frozen=True, gc=False):
    """A model that a replica makes of another one: requests for `model` run `base` with the LoRA
    adapter `name`. With engines that load adapters `model` and `name` are the same."""

    model: str
    name: str
    base: str
    path: str | None = None
    """Where the engine says that it has read the adapter; None: it does not say."""


class ReplicaView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one scrape of one replica said, and when. A figure that was not seen is None, never 0.

    Ratios are in 0..1. Totals are the engine's own counters since its start: a consumer takes
    differences and treats a decrease as a restart. `observed_s` is on the monotonic clock that the
    policies' `now_s` comes from. `prefix_cache_hit_ratio` is the engine's own figure, over a period
    of its choice, for engines that do not count: where the two totals are known, use those.
    `compute_busy_ratio` is how much of the hardware's compute is in use: SM_ACTIVE of DCGM (mean
    over the replica's GPUs), or the engine process's share of its CPU cores; never the GPU_UTIL of
    NVML, which is 1 as soon as any kernel runs.
    """

    replica: str
    observed_s: float
    running: int | None = None
    waiting: int | None = None
    running_max: int | None = None
    kv_cache_usage_ratio: float | None = None
    kv_tokens_max: int | None = None
    prefix_cache_hit_tokens_total: float | None = None
    prefix_cache_query_tokens_total: float | None = None
    prefix_cache_hit_ratio: float | None = None
    preemptions_total: float | None = None
    prompt_tokens_total: float | None = None
    output_tokens_total: float | None = None
    compute_busy_ratio: float | None = None
    kv_stored_tokens: int | None = None
    """Tokens that its prefix cache holds, by the engine's cache events; None while it is not full:
    then that says nothing about its size."""
    kv_cleared_total: int | None = None
    """How often it was seen to be emptied, by these events."""

    def age_s(self, now_s: float) -> float:
        """Seconds since the observation; never negative, also when clocks disagree slightly."""
        return max(0.0, now_s - self.observed_s)
