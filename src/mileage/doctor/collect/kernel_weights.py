"""A timeline and counters of its kernels together -> how much of the GPU is used over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mileage.doctor.collect.facts_document import FactsDocument, bound, facts_document
from mileage.doctor.collect.kernel_name import kernel_base
from mileage.doctor.collect.profile_reading import KernelTime, ProfileReading

__all__ = ["weighted_facts"]

COVERED_MIN: Final = 0.5
"""Of the time of kernels; less of it known makes bounds too wide to be of use."""
_SIGNALS: Final[Mapping[str, Callable[[KernelTime], float | None]]] = {
    "sm_active_ratio": lambda kernel: kernel.sm_active_ratio,
    "sm_occupancy_ratio": lambda kernel: kernel.sm_occupancy_ratio,
    "dram_active_ratio": lambda kernel: kernel.dram_active_ratio,
}


def weighted_facts(timeline: ProfileReading, counters: Sequence[KernelTime]) -> FactsDocument:
    """Ratios over the timeline's window, of one GPU, as bounds.

    A kernel takes its share of the window with what its counters say; an idle GPU uses nothing;
    what no counter was read of is somewhere from nothing to all of it. Kernels that run at the same
    time add up, at most to all of it. Nothing where less than half of the time of kernels is known.
    """
    window_s = timeline.window_s
    total_s = sum(kernel.total_s for kernel in timeline.kernels)
    if window_s is None or total_s <= 0 or timeline.figures.get("gpus_count") != 1:
        return {}
    signals: dict[str, Any] = {}
    for name, of in _SIGNALS.items():
        known = _by_name(counters, of)
        used_s = covered_s = 0.0
        for kernel in timeline.kernels:
            ratio = known.get(kernel.name, known.get(kernel_base(kernel.name)))
            if ratio is not None:
                used_s += ratio * kernel.total_s
                covered_s += kernel.total_s
        if covered_s < COVERED_MIN * total_s:
            continue
        low = min(1.0, used_s / window_s)
        high = min(1.0, (used_s + total_s - covered_s) / window_s)
        signals[name] = low if high - low < 1e-9 else bound(low, high)
    return facts_document(signals=signals)


def _by_name(
    counters: Sequence[KernelTime], of: Callable[[KernelTime], float | None]
) -> dict[str, float]:
    """The ratio by full and by short name; of several of one short name their mean by time."""
    sums: dict[str, tuple[float, float]] = {}
    for kernel in counters:
        ratio = of(kernel)
        if ratio is None or kernel.total_s <= 0:
            continue
        for name in {kernel.name, kernel_base(kernel.name)}:
            used_s, total_s = sums.get(name, (0.0, 0.0))
            sums[name] = (used_s + ratio * kernel.total_s, total_s + kernel.total_s)
    return {name: used_s / total_s for name, (used_s, total_s) in sums.items()}
