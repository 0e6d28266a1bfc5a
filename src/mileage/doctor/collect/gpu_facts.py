"""Looks at GPUs, by NVML or out of an exporter's pages -> signals, one value for each GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import fsum
from typing import Any, Final

import msgspec

from mileage.doctor.collect.facts_document import FactsDocument, facts_document, per_unit
from mileage.measure.gpu_sample import GpuId, GpuSample

__all__ = ["GpuLimits", "gpu_facts"]

_GB: Final = 1e9
_MHZ: Final = 1e6
_THERMAL: Final = frozenset({"sw_thermal", "hw_thermal"})
_POWER: Final = frozenset({"sw_power_cap", "hw_power_brake"})
_MEANS: Final[Mapping[str, tuple[str, float]]] = {
    "gpu_util_ratio": ("gpu_util_ratio", 1),
    "gr_engine_active_ratio": ("gr_active_ratio", 1),
    "sm_active_ratio": ("sm_active_ratio", 1),
    "sm_occupancy_ratio": ("sm_occupancy_ratio", 1),
    "tensor_active_ratio": ("tensor_active_ratio", 1),
    "dram_active_ratio": ("dram_active_ratio", 1),
    "nvlink_tx_bytes_per_s": ("nvlink_tx_bytes_per_s", 1),
    "pcie_tx_bytes_per_s": ("pcie_tx_bytes_per_s", 1),
    "pcie_rx_bytes_per_s": ("pcie_rx_bytes_per_s", 1),
    "gpu_mem_used_gb": ("memory_used_bytes", _GB),
    "power_w": ("power_w", 1),
    "power_limit_w": ("power_limit_w", 1),
    "sm_clock_mhz": ("sm_clock_hz", _MHZ),
    "gpu_temp_c": ("temperature_c", 1),
}
"""Signals that are means of a figure over the looks that know it, in so many of its units."""


class GpuLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a source tells of a GPU besides its figures; None: it does not."""

    gpu: GpuId
    sm_clock_max_hz: float | None = None
    slowdown_temp_c: float | None = None
    last_xid: float | None = None
    """Number of its last XID error, 0 for none."""


def gpu_facts(samples: Sequence[GpuSample], limits: Sequence[GpuLimits] = ()) -> FactsDocument:
    """Means over the looks, one value for each GPU in the order of their names. Never raises.

    A GPU that is cut into instances is told by them in the figures that they have. What throttling
    is counts as the share of the looks that show its reason.
    """
    looks: dict[GpuId, list[GpuSample]] = {}
    for sample in samples:
        if sample.basis == "gpu":
            looks.setdefault(sample.gpu, []).append(sample)
    units = dict(sorted(looks.items()))
    signals: dict[str, Any] = {}
    for name, (figure, unit) in _MEANS.items():
        signals[name] = _of_units(units, partial(_mean_of, figure=figure, unit=unit))
    signals["gpu_mem_free_gb"] = _of_units(units, _free_gb)
    signals["nvlink_util_ratio"] = _of_units(units, _nvlink_use)
    signals["throttle_thermal_ratio"] = _of_units(units, lambda own: _throttled(own, _THERMAL))
    signals["throttle_power_ratio"] = _of_units(units, lambda own: _throttled(own, _POWER))
    owners = max((len(s.owners) for s in samples), default=0)
    if owners > 1:
        # An exporter gives what the device does to each pod on it.
        signals["gpu_util_equal_across_pods"] = True
    signals |= _limit_signals(limits, set(units))
    return facts_document(
        signals=signals,
        hardware=_hardware(units),
        settings={"k8s.pods_on_gpu": owners} if owners > 1 else {},
    )


def _of_units(
    units: Mapping[GpuId, Sequence[GpuSample]],
    read: Callable[[Sequence[GpuSample]], float | None],
) -> float | list[float] | None:
    values = {gpu: value for gpu, own in units.items() if (value := read(own)) is not None}
    cut = {gpu.whole for gpu in values if gpu.instance}
    return per_unit([value for gpu, value in values.items() if gpu.instance or gpu not in cut])


def _mean_of(own: Sequence[GpuSample], figure: str, unit: float) -> float | None:
    values = [getattr(sample, figure) for sample in own]
    return _mean(None if value is None else value / unit for value in values)


def _free_gb(own: Sequence[GpuSample]) -> float | None:
    return _mean(
        (s.memory_total_bytes - s.memory_used_bytes) / _GB
        if s.memory_total_bytes is not None and s.memory_used_bytes is not None
        else None
        for s in own
    )


def _nvlink_use(own: Sequence[GpuSample]) -> float | None:
    """Of the direction that carries more, of what its links carry at most."""
    shares = []
    for sample in own:
        rates = (sample.nvlink_tx_bytes_per_s, sample.nvlink_rx_bytes_per_s)
        known = [rate for rate in rates if rate is not None]
        if known and sample.nvlink_bytes_per_s_max:
            shares.append(min(1.0, max(known) / sample.nvlink_bytes_per_s_max))
    return _mean(shares)


def _throttled(own: Sequence[GpuSample], reasons: frozenset[str]) -> float | None:
    return _mean(
        None if s.throttle_reasons is None else float(bool(s.throttle_reasons & reasons))
        for s in own
    )


def _limit_signals(limits: Sequence[GpuLimits], seen: set[GpuId]) -> dict[str, Any]:
    """Of the GPUs that were looked at; of several tellings of one the last."""
    told = {each.gpu.whole: each for each in limits}
    wholes = {gpu.whole for gpu in seen}
    kept = [told[gpu] for gpu in sorted(told) if not seen or gpu in wholes]
    clocks = [e.sm_clock_max_hz / _MHZ for e in kept if e.sm_clock_max_hz]
    slow = [e.slowdown_temp_c for e in kept if e.slowdown_temp_c]
    errors = [e.last_xid for e in kept if e.last_xid is not None]
    found: dict[str, Any] = {
        "sm_clock_max_mhz": per_unit(clocks),
        "gpu_slowdown_temp_c": per_unit(slow),
    }
    if errors:
        failed = sum(number > 0 for number in errors)
        # The last error's number tells that there was one, not how many there were, nor when.
        found["xid_errors_count"] = {"min": failed} if failed else 0
    return found


def _hardware(units: Mapping[GpuId, Sequence[GpuSample]]) -> dict[str, Any]:
    """The card, where all are of one kind."""
    latest = [own[-1] for own in units.values()]
    models = {sample.model for sample in latest if sample.model is not None}
    sizes = {
        round(sample.memory_total_bytes / _GB, 1)
        for sample in latest
        if sample.memory_total_bytes and not sample.gpu.instance
    }
    profiles = {
        sample.sharing.profile
        for sample in latest
        if sample.sharing is not None and sample.sharing.profile
    }
    return {
        "gpu": models.pop() if len(models) == 1 else None,
        "memory_gb": sizes.pop() if len(sizes) == 1 else None,
        "mig_profile": profiles.pop() if len(profiles) == 1 else None,
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return fsum(known) / len(known) if known else None
