"""Checks of a GPU's figures against each other and against what is possible.

A figure that cannot be true is worse than none: an idle GPU that works would be filled further, a
link beyond its maximum would be blamed. What is refused becomes None, and `doubts` says why.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from mileage.measure.gpu_sample import GpuSample

__all__ = ["checked"]

_BUSY: Final = 0.99
_RATIO_SLACK: Final = 0.01
_RATE_SLACK: Final = 1.1
"""Links' maxima are nominal; a rate a little above one is a matter of timing."""
_POWER_SLACK: Final = 3.0
"""Spikes go beyond the limit for milliseconds."""
_POWER_MAX_W: Final = 5_000.0
_CLOCK_MAX_HZ: Final = 2e10
_TEMPERATURES_C: Final = (-60.0, 150.0)
_RATIOS: Final = (
    "gpu_util_ratio",
    "gr_active_ratio",
    "mem_copy_util_ratio",
    "sm_active_ratio",
    "sm_occupancy_ratio",
    "tensor_active_ratio",
    "dram_active_ratio",
)
_PROFILED: Final = _RATIOS[1:2] + _RATIOS[3:]
"""The profiling fields, which fail together and then read 0 (NVIDIA/dcgm-exporter#662)."""
_RATES: Final = (
    ("nvlink_tx_bytes_per_s", "nvlink_bytes_per_s_max"),
    ("nvlink_rx_bytes_per_s", "nvlink_bytes_per_s_max"),
    ("pcie_tx_bytes_per_s", "pcie_bytes_per_s_max"),
    ("pcie_rx_bytes_per_s", "pcie_bytes_per_s_max"),
)
_BYTES: Final = ("memory_used_bytes", "memory_total_bytes", "memory_largest_free_bytes")


def checked(sample: GpuSample) -> GpuSample:
    """The sample without what cannot be true; twice is as once, and it never raises."""
    found: dict[str, object] = {}
    doubts: list[str] = []
    for name in _RATIOS:
        value = getattr(sample, name)
        if value is None:
            continue
        if not 0.0 <= value <= 1.0 + _RATIO_SLACK:  # NaN neither
            _refuse(found, doubts, name, f"{value:g} is no share")
        elif value > 1.0:
            found[name] = 1.0
    for name, most_name in _RATES:
        _check_rate(sample, name, most_name, found, doubts)
    _check_memory(sample, found, doubts)
    _check_physics(sample, found, doubts)
    _check_profiling(sample, found, doubts)
    if not found:
        return sample
    kept = tuple(doubt for doubt in sample.doubts if doubt not in doubts)
    return msgspec.structs.replace(sample, **found, doubts=(*kept, *doubts))


def _refuse(found: dict[str, object], doubts: list[str], name: str, why: str) -> None:
    found[name] = None
    doubts.append(f"{name}: {why}")


def _check_rate(
    sample: GpuSample, name: str, most_name: str, found: dict[str, object], doubts: list[str]
) -> None:
    value, most = getattr(sample, name), getattr(sample, most_name)
    if most is not None and not (math.isfinite(most) and most >= 0.0):
        most = found[most_name] = None
    if value is None:
        return
    if not (math.isfinite(value) and value >= 0.0):
        _refuse(found, doubts, name, f"{value:g} is no rate")
    elif most is not None and value > max(1.0, _RATE_SLACK * most):
        _refuse(found, doubts, name, f"{value:.3g} is more than its links carry, {most:.3g}")


def _check_memory(sample: GpuSample, found: dict[str, object], doubts: list[str]) -> None:
    for name in _BYTES:
        value = getattr(sample, name)
        if value is not None and value < 0:
            _refuse(found, doubts, name, f"{value} bytes")
    total = sample.memory_total_bytes
    if total is None or total < 0:
        return
    for name in ("memory_used_bytes", "memory_largest_free_bytes"):
        value = getattr(sample, name)
        if value is not None and value > total:
            _refuse(found, doubts, name, f"{value} bytes of {total}")


def _check_physics(sample: GpuSample, found: dict[str, object], doubts: list[str]) -> None:
    limit_w = sample.power_limit_w
    if limit_w is not None and not 0.0 < limit_w <= _POWER_MAX_W:
        limit_w = found["power_limit_w"] = None
    most_w = _POWER_MAX_W if limit_w is None else _POWER_SLACK * limit_w
    bounds = {
        "power_w": (0.0, most_w),
        "energy_j": (0.0, 1e15),
        "sm_clock_hz": (0.0, _CLOCK_MAX_HZ),
        "memory_clock_hz": (0.0, _CLOCK_MAX_HZ),
        "temperature_c": _TEMPERATURES_C,
    }
    for name, (least, most) in bounds.items():
        value = getattr(sample, name)
        if value is not None and not least <= value <= most:
            _refuse(found, doubts, name, f"{value:g} is not possible")


def _check_profiling(sample: GpuSample, found: dict[str, object], doubts: list[str]) -> None:
    """Some kernel ran all the time, on one multiprocessor at least: counters cannot stand at 0."""
    util = found.get("gpu_util_ratio", sample.gpu_util_ratio)
    if not isinstance(util, float) or util < _BUSY:
        return
    witness = sample.sm_active_ratio
    if witness is None:
        witness = sample.gr_active_ratio
    for name in _PROFILED:
        value = getattr(sample, name)
        # With the multiprocessors seen at work, idle tensor pipes and memory are possible.
        if value == 0.0 and not witness:
            why = f"0 while gpu_util_ratio is {util:.2f}: profiling has stopped"
            _refuse(found, doubts, name, why)
