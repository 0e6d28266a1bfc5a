"""GpuRollup: a minute of a GPU's samples as mean, highest and p95 of each figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from mileage.measure.gpu_sample import GpuId, GpuSample
from mileage.measure.quantiles import quantile

__all__ = ["ROLLED_UP", "FigureRollup", "GpuRollup", "MinuteRollups", "rolled_up"]

ROLLED_UP: Final = (
    "gpu_util_ratio",
    "gr_active_ratio",
    "mem_copy_util_ratio",
    "sm_active_ratio",
    "sm_occupancy_ratio",
    "tensor_active_ratio",
    "dram_active_ratio",
    "nvlink_tx_bytes_per_s",
    "nvlink_rx_bytes_per_s",
    "pcie_tx_bytes_per_s",
    "pcie_rx_bytes_per_s",
    "memory_used_bytes",
    "power_w",
    "sm_clock_hz",
    "temperature_c",
)
_MINUTE_S: Final = 60
_SAMPLES_MAX: Final = 6_000
"""Of one GPU and minute: ten times the usual; of more, every other one is kept."""


class FigureRollup(msgspec.Struct, frozen=True, gc=False):
    """One figure over the samples in which it was known."""

    mean: float
    most: float
    p95: float
    samples: int


class GpuRollup(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One GPU and minute. A figure that was never known is absent."""

    minute_at_utc_s: int
    gpu: GpuId
    model: str | None
    samples: int
    figures: dict[str, FigureRollup]
    energy_j: float | None
    """Used between the minute's first sample and its last; None: not counted, or it began anew."""
    throttled: dict[str, float]
    """Why clocks were lowered, and in which share of the samples that tell."""


def rolled_up(samples: Sequence[GpuSample], *, minute_at_utc_s: int) -> GpuRollup:
    """One GPU's samples of one minute, at least one, in order of time."""
    figures: dict[str, FigureRollup] = {}
    for name in ROLLED_UP:
        values = [float(v) for s in samples if (v := getattr(s, name)) is not None]
        if values:
            p95 = quantile(values, 0.95)
            assert p95 is not None
            mean = math.fsum(values) / len(values)
            figures[name] = FigureRollup(mean, max(values), p95, len(values))
    told = [s.throttle_reasons for s in samples if s.throttle_reasons is not None]
    return GpuRollup(
        minute_at_utc_s=minute_at_utc_s,
        gpu=samples[0].gpu,
        model=samples[-1].model,
        samples=len(samples),
        figures=figures,
        energy_j=_energy(samples),
        throttled={
            reason: sum(reason in each for each in told) / len(told)
            for reason in sorted(frozenset[str]().union(*told))
        },
    )


def _energy(samples: Sequence[GpuSample]) -> float | None:
    totals = [s.energy_j for s in samples if s.energy_j is not None]
    if len(totals) < 2 or any(b < a for a, b in pairwise(totals)):
        return None
    return totals[-1] - totals[0]


class MinuteRollups:
    """Gathers samples, and gives a minute's roll-ups once the next minute has begun.

    A clock that goes back puts samples into the minute that is open: none is counted twice.
    """

    def __init__(self) -> None:
        self._minute: int | None = None
        self._samples: dict[GpuId, list[GpuSample]] = {}

    def add(self, samples: Iterable[GpuSample], *, at_utc_s: float) -> tuple[GpuRollup, ...]:
        """Take one look's samples; the roll-ups of the minute that it ended, mostly none."""
        minute = int(at_utc_s // _MINUTE_S) * _MINUTE_S
        ended: tuple[GpuRollup, ...] = ()
        if self._minute is None or minute > self._minute:
            ended = self.close()
            self._minute = minute
        for sample in samples:
            kept = self._samples.setdefault(sample.gpu, [])
            kept.append(sample)
            if len(kept) > _SAMPLES_MAX:
                del kept[1:-1:2]
        return ended

    def close(self) -> tuple[GpuRollup, ...]:
        """The roll-ups of the minute that is open; then none is."""
        minute, self._minute = self._minute, None
        samples, self._samples = self._samples, {}
        if minute is None:
            return ()
        return tuple(rolled_up(each, minute_at_utc_s=minute) for each in samples.values())
