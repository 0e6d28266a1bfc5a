"""ServerUse: what the server under test used of its machine in a window, and how that is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

__all__ = ["Basis", "Figure", "ServerUse", "UseSample", "UseSeries", "server_use"]

Figure = Literal["utilisation_ratio", "memory_bytes", "energy_j"]
Basis = Literal[
    "gpu_sm_active",
    "gpu_kernel_time",
    "process_cpu",
    "gpu_memory",
    "process_pss",
    "process_rss",
    "gpu_energy",
    "gpu_power",
    "machine_rapl",
]
"""gpu_sm_active: share of the GPUs' multiprocessors in use; gpu_kernel_time: share of time in which
any kernel ran, which is near 1 with a single request and so no measure of how full a GPU is;
process_cpu: CPU time of the engine's processes over the cores that they may use; gpu_memory: used
memory of its GPUs, which engines allocate in advance; process_pss: memory of its processes, what
they share counted once; process_rss: of its one process, or where PSS cannot be read, of each;
gpu_energy: counted by its GPUs; gpu_power: power of its GPUs, summed over time; machine_rapl:
counted by the machine's processors, whatever runs on them."""

_WHOLE_MIN_RATIO = 0.99
_COVERED_MIN_RATIO = 0.5
"""A mean over less than this share of the window says nothing about the window."""


class UseSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One look at the server. `at_s` is on the sampler's clock; what is None was not seen.

    `utilisation_ratio`, `energy_j` and `gateway_cpu_cores` are over the time since the sample
    before (None for the first of an epoch); the others are of the moment.
    """

    at_s: float
    epoch: int = 0
    """Which run of the server: one more once it was seen to be another process, or away."""
    utilisation_ratio: float | None = None
    memory_bytes: int | None = None
    energy_j: float | None = None
    kv_cache_usage_ratio: float | None = None
    running: int | None = None
    waiting: int | None = None
    gateway_cpu_cores: float | None = None
    gateway_memory_bytes: int | None = None


class ServerUse(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a window. Of each of utilisation, memory and energy either `basis` has how it is
    known, or `missing` why it is not.

    KV-cache use is no utilisation: an engine that holds idle conversations fills its cache without
    computing anything. It stands apart, and so does what a gateway before the engine uses.
    """

    utilisation_ratio: float | None = None
    """Mean, 0..1."""
    memory_bytes: int | None = None
    """Highest seen."""
    energy_j: float | None = None
    basis: dict[Figure, Basis] = {}
    missing: dict[Figure, str] = {}
    kv_cache_usage_ratio: float | None = None
    """Mean of the engine's own figure."""
    running_mean: float | None = None
    """Mean of the requests that the engine says it runs."""
    gateway_cpu_cores: float | None = None
    """Cores that the gateway's own processes kept busy; None where there is no gateway here."""
    gateway_memory_bytes: int | None = None
    samples: int = 0
    restarted: bool = False
    """The server's process ended, or another took its place, in the window."""


class UseSeries(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of a run, in order of time, and how each figure was known."""

    samples: tuple[UseSample, ...] = ()
    basis: dict[Figure, Basis] = {}
    missing: dict[Figure, str] = {}
    """Why a figure is None in all samples."""


def server_use(series: UseSeries, *, start_s: float, end_s: float) -> ServerUse:
    """The figures of [start_s, end_s], on the samples' clock.

    A figure over an interval counts with the part of the interval that lies in the window. It is
    None where it is known for less than half of the window; energy, where a part is unknown.
    """
    samples = series.samples
    inside = [sample for sample in samples if start_s <= sample.at_s <= end_s]
    parts = _parts(samples, start_s, end_s)
    found: dict[Figure, float | int | None] = {
        "utilisation_ratio": _mean(parts, "utilisation_ratio", end_s - start_s),
        "memory_bytes": max(
            (s.memory_bytes for s in inside if s.memory_bytes is not None), default=None
        ),
        "energy_j": _energy(parts, end_s - start_s),
    }
    basis, missing = _known(series, found, len(inside))
    return ServerUse(
        utilisation_ratio=found["utilisation_ratio"],
        memory_bytes=None if found["memory_bytes"] is None else int(found["memory_bytes"]),
        energy_j=found["energy_j"],
        basis=basis,
        missing=missing,
        kv_cache_usage_ratio=_average([s.kv_cache_usage_ratio for s in inside]),
        running_mean=_average([s.running for s in inside]),
        gateway_cpu_cores=_mean(parts, "gateway_cpu_cores", end_s - start_s),
        gateway_memory_bytes=_highest([s.gateway_memory_bytes for s in inside]),
        samples=len(inside),
        restarted=_restarted(samples, start_s, end_s),
    )


def _parts(
    samples: Sequence[UseSample], start_s: float, end_s: float
) -> list[tuple[UseSample, float, float]]:
    """Samples whose interval overlaps the window: sample, overlap and interval in seconds."""
    found = []
    for before, sample in pairwise(samples):
        overlap_s = min(end_s, sample.at_s) - max(start_s, before.at_s)
        if overlap_s > 0:
            found.append((sample, overlap_s, sample.at_s - before.at_s))
    return found


def _mean(
    parts: Sequence[tuple[UseSample, float, float]],
    name: Literal["utilisation_ratio", "gateway_cpu_cores"],
    window_s: float,
) -> float | None:
    known = [(value, s) for sample, s, _ in parts if (value := getattr(sample, name)) is not None]
    covered_s = sum(s for _, s in known)
    if not known or covered_s < _COVERED_MIN_RATIO * window_s:
        return None
    return float(sum(value * s for value, s in known) / covered_s)


def _energy(parts: Sequence[tuple[UseSample, float, float]], window_s: float) -> float | None:
    """Joules; the window's edges lie within intervals, of which they take their share."""
    if sum(s for _, s, _ in parts) < _WHOLE_MIN_RATIO * window_s:
        return None
    joules = 0.0
    for sample, overlap_s, interval_s in parts:
        if sample.energy_j is None:
            return None
        joules += sample.energy_j * overlap_s / interval_s
    return joules if parts else None


def _known(
    series: UseSeries, found: Mapping[Figure, float | None], samples: int
) -> tuple[dict[Figure, Basis], dict[Figure, str]]:
    basis: dict[Figure, Basis] = {}
    missing: dict[Figure, str] = {}
    for figure, value in found.items():
        if value is not None and figure in series.basis:
            basis[figure] = series.basis[figure]
        elif not samples:
            missing[figure] = series.missing.get(
                figure, "the server was not looked at in this window"
            )
        else:
            missing[figure] = series.missing.get(figure, "not known for enough of this window")
    return basis, missing


def _highest(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _restarted(samples: Sequence[UseSample], start_s: float, end_s: float) -> bool:
    """The last look before the window, if any, counts as its beginning; so at its end."""
    before = [sample.epoch for sample in samples if sample.at_s < start_s][-1:]
    inside = [sample.epoch for sample in samples if start_s <= sample.at_s <= end_s]
    after = [sample.epoch for sample in samples if sample.at_s > end_s][:1]
    return len({*before, *inside, *after}) > 1
