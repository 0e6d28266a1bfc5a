"""The JSON document of `mileage cost bottleneck`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mileage.measure.bottleneck import Bottleneck, GpuBottleneck
from mileage.measure.gpu_rollup import rolled_up
from mileage.measure.gpu_sharing import parts_of
from mileage.measure.measured_weights import measured_weights
from mileage.measure.telemetry import Telemetry
from mileage.scrape.telemetry_sampler import SamplerStatus

__all__ = ["bottleneck_document"]


def bottleneck_document(
    result: Bottleneck, telemetry: Telemetry, states: Mapping[str, SamplerStatus]
) -> dict[str, Any]:
    """The document. What was not seen is null. Times are seconds of a clock without a meaning of
    its own: differences count. `weights` are what attribution would take as measured."""
    return {
        "outcome": result.outcome,
        "window": {
            "start_s": result.start_s,
            "end_s": result.end_s,
            "period_s": result.period_s,
            "looks": len({sample.at_s for sample in telemetry.samples}),
        },
        "gpus": [_gpu(gpu, telemetry) for gpu in result.gpus],
        "weights": msgspec.to_builtins(measured_weights(telemetry.samples)),
        "missing": result.missing,
        "samplers": {
            name: {
                "looks": state.looks,
                "failed": state.failed,
                "period_s": state.period_s,
                "cpu_ratio": state.cpu_ratio,
            }
            for name, state in states.items()
        },
    }


def _gpu(gpu: GpuBottleneck, telemetry: Telemetry) -> dict[str, Any]:
    samples = [sample for sample in telemetry.samples if sample.gpu == gpu.gpu]
    rollup = rolled_up(samples, minute_at_utc_s=0)
    last = samples[-1]
    moment = [s for s in telemetry.samples if s.at_s == last.at_s]
    return {
        "gpu": gpu.gpu.label,
        "uuid": gpu.gpu.uuid or None,
        "model": gpu.model,
        "basis": last.basis,
        "outcome": gpu.outcome,
        "bound": [verdict.dimension for verdict in gpu.bound],
        "busy_mean_ratio": gpu.busy_mean_ratio,
        "samples": gpu.samples,
        "verdicts": msgspec.to_builtins(gpu.verdicts),
        "figures": msgspec.to_builtins(rollup.figures),
        "energy_j": rollup.energy_j,
        "throttled": rollup.throttled,
        "sharing": msgspec.to_builtins(last.sharing),
        "shares": {
            name: part
            for name, part in parts_of(moment).items()
            if name.split(" ")[0] == gpu.gpu.label
        },
        "doubts": list(gpu.doubts),
    }
