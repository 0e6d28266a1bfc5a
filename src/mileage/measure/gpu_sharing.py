"""What part of a GPU each of its sharers holds, and so pays for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from mileage.measure.gpu_sample import GpuSample

__all__ = ["GpuPart", "capacity_ratios", "mig_part", "parts_of"]

_PROFILE = re.compile(r"(?:\dc\.)?([1-9]\d?)g\.(\d{1,4})gb(?:\+[\w.+]+)?", re.ASCII)
_SLICES: Final = 7
_SLICES_A30: Final = 4
_A30 = re.compile(r"\bA30\b", re.IGNORECASE)
_GIB: Final = 2**30
_NOMINAL_SLACK: Final = 0.04
"""A profile's memory is rounded to whole gigabytes, the GPU's is told to the byte."""


class GpuPart(msgspec.Struct, frozen=True, gc=False):
    """A MIG instance's part of its GPU, 0..1; memory None where the GPU's size is not known."""

    compute_ratio: float
    memory_ratio: float | None = None

    @property
    def dominant_ratio(self) -> float:
        """The larger of the two: what it holds of the one, nobody can use without the other."""
        return max(self.compute_ratio, self.memory_ratio or 0.0)


def mig_part(
    profile: str, *, model: str | None = None, memory_total_bytes: int | None = None
) -> GpuPart | None:
    """The part that a MIG profile is: `3g.40gb` of an A100-80GB holds 3/7 of the multiprocessors
    and half of the memory. None for a text that is no profile.

    A GPU has seven compute slices, an A30 four. `memory_total_bytes` is the whole GPU's.
    """
    match = _PROFILE.fullmatch(profile.strip().lower())
    if match is None:
        return None
    slices = _SLICES_A30 if model is not None and _A30.search(model) else _SLICES
    compute = min(1.0, int(match[1]) / slices)
    memory = None
    if memory_total_bytes:
        memory = int(match[2]) * _GIB / memory_total_bytes
        memory = 1.0 if memory > 1.0 - _NOMINAL_SLACK else _eighths(memory)
    return GpuPart(compute, memory)


def capacity_ratios(parts: Sequence[GpuPart | None]) -> tuple[float, ...]:
    """What each of a GPU's sharers pays for, 0..1; the sum is at most 1, the rest is nobody's.

    MIG instances hold the larger of their parts of compute and memory; where these sum to more
    than the GPU, each is scaled alike. Sharers without a part (None: time-slicing, MPS) hold what
    is left in equal parts, whether they use it or not: what one of them leaves idle the others may
    take, but nobody reserved it.
    """
    held = sum(part.dominant_ratio for part in parts if part is not None)
    alike = sum(part is None for part in parts)
    scale = 1.0 if held <= 1.0 else 1.0 / held
    rest = max(0.0, 1.0 - held) / alike if alike else 0.0
    return tuple(rest if part is None else part.dominant_ratio * scale for part in parts)


def parts_of(samples: Sequence[GpuSample]) -> dict[str, float]:
    """Of one moment's samples: each sharer and its part, by `GPU-LABEL` and, where several
    workloads share one unit, `GPU-LABEL NAMESPACE/POD/CONTAINER`.

    A GPU that is there as a whole beside its instances is left out: its instances hold it.
    """
    divided = {sample.gpu.whole for sample in samples if sample.gpu.instance}
    groups: dict[object, list[GpuSample]] = {}
    for sample in samples:
        if sample.gpu.instance or sample.gpu.whole not in divided:
            groups.setdefault(sample.gpu.whole, []).append(sample)
    totals = {s.gpu: s.memory_total_bytes for s in samples if not s.gpu.instance}
    found: dict[str, float] = {}
    for members in groups.values():
        if not members[0].gpu.instance:
            ratios: tuple[float, ...] = (1.0,)
        else:
            parts = [_part(member, totals.get(member.gpu.whole)) for member in members]
            ratios = capacity_ratios(parts)
        for member, ratio in zip(members, ratios, strict=False):
            _give(found, member, ratio)
    return found


def _part(sample: GpuSample, memory_total_bytes: int | None) -> GpuPart | None:
    profile = "" if sample.sharing is None else sample.sharing.profile
    return mig_part(profile, model=sample.model, memory_total_bytes=memory_total_bytes)


def _give(found: dict[str, float], sample: GpuSample, ratio: float) -> None:
    if len(sample.owners) < 2:
        found[sample.gpu.label] = ratio
        return
    for owner in sample.owners:
        name = f"{sample.gpu.label} {owner.namespace}/{owner.pod}/{owner.container}"
        found[name] = ratio / len(sample.owners)


def _eighths(ratio: float) -> float:
    """Memory is divided in eighths (an A30's in fourths); what a profile calls it is rounded."""
    return min(1.0, max(1, round(ratio * 8)) / 8)
