"""What holds GPUs up: compute, memory, interconnect or the host, each verdict with its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Literal, TypeAlias

import msgspec

from mileage.measure.bottleneck_config import BottleneckConfig
from mileage.measure.bottleneck_rules import DIMENSIONS, figures_of
from mileage.measure.bottleneck_verdict import Verdict, verdict_of
from mileage.measure.gpu_sample import GpuId, GpuSample
from mileage.measure.telemetry import Telemetry, moments_of

__all__ = ["Bottleneck", "GpuBottleneck", "Outcome", "bottleneck"]

Outcome: TypeAlias = Literal["bound", "none", "not_enough_evidence"]
_GRAVEST_FIRST: tuple[Outcome, ...] = ("bound", "not_enough_evidence", "none")


class GpuBottleneck(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU: all four dimensions, those that held first."""

    gpu: GpuId
    model: str | None
    outcome: Outcome
    verdicts: tuple[Verdict, ...]
    samples: int
    busy_mean_ratio: float | None
    doubts: tuple[str, ...]

    @property
    def bound(self) -> tuple[Verdict, ...]:
        """The verdicts that held."""
        return tuple(verdict for verdict in self.verdicts if verdict.held)


class Bottleneck(msgspec.Struct, frozen=True, kw_only=True):
    """The window, and each of its GPUs. `outcome` is the gravest of theirs: a GPU that is bound
    before one of which too little is known before none."""

    outcome: Outcome
    start_s: float | None
    end_s: float | None
    period_s: float | None
    """The usual time between looks."""
    gpus: tuple[GpuBottleneck, ...]
    missing: dict[str, str]


def bottleneck(telemetry: Telemetry, config: BottleneckConfig) -> Bottleneck:
    """The verdicts of a window.

    Each rule is asked at each look: a GPU that computes prefills for a third of the time and reads
    memory for the rest is on average neither. A dimension holds where its rule held in `held_min`
    of the looks, and does not where it could not have, whatever it was in the looks that do not
    tell; else, and with fewer than `samples_min` that tell, it is not known.
    """
    groups: dict[GpuId, list[GpuSample]] = {}
    for sample in telemetry.samples:
        groups.setdefault(sample.gpu, []).append(sample)
    gpus = tuple(_of_gpu(each, telemetry, config) for _, each in sorted(groups.items()))
    found = {gpu.outcome for gpu in gpus}
    times = sorted({sample.at_s for sample in telemetry.samples})
    gaps = [b - a for a, b in pairwise(times)]
    return Bottleneck(
        outcome=next((o for o in _GRAVEST_FIRST if o in found), "not_enough_evidence"),
        start_s=times[0] if times else None,
        end_s=times[-1] if times else None,
        period_s=median(gaps) if gaps else None,
        gpus=gpus,
        missing=dict(telemetry.missing),
    )


def _of_gpu(
    samples: Sequence[GpuSample], telemetry: Telemetry, config: BottleneckConfig
) -> GpuBottleneck:
    moments = moments_of(samples, telemetry, link_full_min=config.nvlink_min)
    figures = figures_of(samples)
    verdicts = [verdict_of(dimension, moments, config, figures) for dimension in DIMENSIONS]
    verdicts.sort(key=lambda v: (not v.held, -(v.held_ratio or 0.0)))
    if any(verdict.held for verdict in verdicts):
        outcome: Outcome = "bound"
    elif any(verdict.held is None for verdict in verdicts):
        outcome = "not_enough_evidence"
    else:
        outcome = "none"
    busy = [r for s in samples if (r := _busy(s)) is not None]
    return GpuBottleneck(
        gpu=samples[0].gpu,
        model=samples[-1].model,
        outcome=outcome,
        verdicts=tuple(verdicts),
        samples=len(samples),
        busy_mean_ratio=sum(busy) / len(busy) if busy else None,
        doubts=tuple(dict.fromkeys(doubt for sample in samples for doubt in sample.doubts)),
    )


def _busy(sample: GpuSample) -> float | None:
    active = sample.sm_active_ratio
    return sample.kernel_time_ratio if active is None else active
