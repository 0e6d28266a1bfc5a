"""Shares that were given in percent: no share of a whole is above 1, so 97 says 97 %."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from mileage.doctor.interval import Interval, exactly

__all__ = ["as_shares"]

SHARES = frozenset(
    {
        "cpu_throttled_ratio",
        "dram_active_ratio",
        "gpu_memory_utilization",
        "gpu_util_ratio",
        "gr_engine_active_ratio",
        "graph_replay_ratio",
        "identical_after_diff_ratio",
        "io_wait_ratio",
        "kv_cache_usage_ratio",
        "mm_cache_hit_ratio",
        "nvlink_util_ratio",
        "prefix_cache_hit_ratio",
        "shared_prefix_ratio",
        "sm_active_ratio",
        "sm_occupancy_ratio",
        "spec_acceptance_ratio",
        "tensor_active_ratio",
        "throttle_power_ratio",
        "throttle_thermal_ratio",
        "vgpu.core_limit_ratio",
    }
)
"""Keys of shares of a whole. Ratios of two things (costs, speeds, loads) may well be above 1."""

PERCENT_FROM = 2.0
"""A share of 1.02 is one of two clocks that differ; from here on it is a percentage."""

PERCENT_MAX = 101.0


def as_shares(key: str, parts: tuple[Interval, ...]) -> tuple[Interval, ...] | None:
    """The parts of one fact as shares; None where they are neither shares nor percentages.

    All parts of one fact have one unit: beside a 97 a 1 is one per cent.
    """
    if key not in SHARES:
        return parts
    most = max(_ends(parts), default=0.0)
    if most < PERCENT_FROM:
        return parts
    if most > PERCENT_MAX:
        return None
    return tuple(part.times(exactly(0.01)) for part in parts)


def _ends(parts: Sequence[Interval]) -> list[float]:
    return [end for part in parts for end in (part.low, part.high) if isfinite(end)]
