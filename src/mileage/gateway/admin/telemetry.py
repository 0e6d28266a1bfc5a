"""Telemetry in the admin plane: how looking at GPUs goes, and what their last minutes were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mileage.measure.metrics import FamilySnapshot, Gauge

__all__ = [
    "GPUS_MAX",
    "GpuMinuteRow",
    "TelemetrySourceRow",
    "TelemetryStatus",
    "telemetry_families",
]

GPUS_MAX: Final = 250
"""Told of in the status and as metrics; the ledger has all."""


class TelemetrySourceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One source, looked at in a thread of its own; totals are since it was first looked at.

    `period_s` is the time between two looks, now, and `cpu_ratio` what they have cost of one core.
    `error` says why the last look saw nothing. `hanging_s`: for how long the look under way has not
    come back.
    """

    source: str
    period_s: float
    cpu_ratio: float
    looks_total: int
    failed_total: int
    hanging_s: float = 0.0
    error: str | None = None


class GpuMinuteRow(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU in the last minute of which it was seen; None is not known. Means, the highest of
    `memory_used_bytes`."""

    host: str
    gpu: str
    minute_at_utc_s: int
    sm_active_ratio: float | None = None
    gpu_util_ratio: float | None = None
    dram_active_ratio: float | None = None
    memory_used_bytes: float | None = None
    power_w: float | None = None


class TelemetryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`dropped_total`: figures of minutes that the ledger had no room for. `error`: why it stores
    none."""

    enabled: bool
    sources: Sequence[TelemetrySourceRow] = ()
    gpus: Sequence[GpuMinuteRow] = ()
    dropped_total: int = 0
    error: str | None = None


class _TelemetryMetrics:
    """One set of families, filled from scratch."""

    def __init__(self) -> None:
        gpu = ("host", "gpu")
        self.period = Gauge(
            "mileage_telemetry_period_seconds",
            "Time between two looks at a source of GPU telemetry, now: longer where looking costs"
            " too much.",
            ("source",),
        )
        self.cpu = Gauge(
            "mileage_telemetry_cpu_ratio",
            "CPU time of looking at a source, of one core, over all of the time.",
            ("source",),
        )
        self.up = Gauge(
            "mileage_telemetry_up",
            "1 where the last look at the source saw something.",
            ("source",),
        )
        self.sm_active = Gauge(
            "mileage_gpu_sm_active_ratio",
            "Cycles in which a multiprocessor had work, mean of the last minute; of the embedded"
            " engine its busy cores.",
            gpu,
        )
        self.util = Gauge(
            "mileage_gpu_util_ratio",
            "Time in which at least one kernel ran, mean of the last minute; of the embedded engine"
            " its busiest thread.",
            gpu,
        )
        self.dram_active = Gauge(
            "mileage_gpu_dram_active_ratio",
            "Cycles in which device memory was read or written, mean of the last minute.",
            gpu,
        )
        self.memory = Gauge(
            "mileage_gpu_memory_used_bytes",
            "Device memory in use, highest of the last minute.",
            gpu,
        )
        self.power = Gauge("mileage_gpu_power_watts", "Power, mean of the last minute.", gpu)
        self.minute = Gauge(
            "mileage_gpu_minute_timestamp_seconds",
            "Begin of the minute that the figures of the GPU are of.",
            gpu,
        )


def telemetry_families(status: TelemetryStatus | None) -> list[FamilySnapshot]:
    """The families; what is not known is absent."""
    if status is None:
        return []
    metrics = _TelemetryMetrics()
    for source in status.sources:
        source_labels = (source.source,)
        metrics.period.set(source.period_s, source_labels)
        metrics.cpu.set(source.cpu_ratio, source_labels)
        if source.looks_total:
            metrics.up.set(int(source.error is None), source_labels)
    for row in status.gpus:
        labels = (row.host, row.gpu)
        metrics.minute.set(row.minute_at_utc_s, labels)
        for gauge, value in (
            (metrics.sm_active, row.sm_active_ratio),
            (metrics.util, row.gpu_util_ratio),
            (metrics.dram_active, row.dram_active_ratio),
            (metrics.memory, row.memory_used_bytes),
            (metrics.power, row.power_w),
        ):
            if value is not None:
                gauge.set(value, labels)
    snapshots = [gauge.snapshot() for gauge in vars(metrics).values() if isinstance(gauge, Gauge)]
    return [snapshot for snapshot in snapshots if snapshot.numbers]
