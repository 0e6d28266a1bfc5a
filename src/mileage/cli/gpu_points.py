"""Points of GPUs on the UTC clock: out of the ledger's minutes, and out of saved telemetry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Final

from mileage.core.errors import TraceError
from mileage.dashboard.gpu_tracks import GpuPoint
from mileage.measure.gpu_use import BANDWIDTH_FIGURES, BUSY_FIGURES, bandwidth_use, idle_share
from mileage.measure.telemetry import Telemetry
from mileage.storage.gpu_minutes import GpuMinute

__all__ = ["POINT_FIELDS", "minute_points", "sample_points"]

POINT_FIELDS: Final = (*BANDWIDTH_FIGURES, *BUSY_FIGURES, "power_w")
"""What is to be read of the ledger's minutes."""
_NS: Final = 1_000_000_000
_MINUTE_NS: Final = 60 * _NS
_GAP_MAX_NS: Final = 60 * _NS
"""A look after a longer pause tells of its own moment alone."""


def minute_points(minutes: Iterable[GpuMinute]) -> Iterator[GpuPoint]:
    """One per GPU and minute, of rows in the order of `read_gpu_minutes`: means of the minute."""
    for _, rows in groupby(minutes, key=lambda row: row[:3]):
        (first, *rest) = rows
        figures = {row.field: row.mean for row in (first, *rest)}
        at_s = first.minute_at_utc_s
        yield GpuPoint(
            f"{first.host}:{first.gpu}" if first.host else first.gpu,
            at_s * _NS,
            at_s * _NS + _MINUTE_NS,
            bandwidth_use(figures.get),
            idle_share(figures.get),
            figures.get("power_w"),
        )


def sample_points(telemetry: Telemetry, *, path: str) -> Iterator[GpuPoint]:
    """One per look at a GPU, from its look before on: figures are means since then.

    Raises TraceError where the looks have no time of day.
    """
    zero_ns = telemetry.zero_at_utc_ns
    if zero_ns is None:
        why = "has no time of day: an exporter's pages have none, nor do files of early versions"
        raise TraceError(path, 1, why)
    last_ns: dict[str, int] = {}
    for sample in telemetry.samples:
        end_ns = zero_ns + round(max(-1e10, min(sample.at_s, 1e10)) * _NS)
        if not 0 < end_ns < 1 << 63:
            raise TraceError(path, 0, f"has a look at an impossible time: at_s {sample.at_s:g}")
        gpu = sample.gpu.label
        start_ns = last_ns.get(gpu, end_ns)
        last_ns[gpu] = end_ns
        if end_ns - start_ns > _GAP_MAX_NS:
            start_ns = end_ns
        figure = partial(getattr, sample)
        yield GpuPoint(
            gpu, start_ns, end_ns, bandwidth_use(figure), idle_share(figure), sample.power_w
        )
