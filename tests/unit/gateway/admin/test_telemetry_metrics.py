"""Metric families of telemetry: what is known of sources and GPUs, and nothing else."""

from __future__ import annotations

from mileage.gateway.admin.telemetry import (
    GpuMinuteRow,
    TelemetrySourceRow,
    TelemetryStatus,
    telemetry_families,
)


def numbers(status: TelemetryStatus | None) -> dict[str, dict[tuple[str, ...], float]]:
    return {family.name: dict(family.numbers) for family in telemetry_families(status)}


def source(**fields: object) -> TelemetrySourceRow:
    given = {
        "source": "nvml",
        "period_s": 0.1,
        "cpu_ratio": 0.004,
        "looks_total": 9,
        "failed_total": 0,
        **fields,
    }
    return TelemetrySourceRow(**given)  # type: ignore[arg-type]


def test_without_telemetry_there_are_no_families() -> None:
    assert numbers(None) == numbers(TelemetryStatus(enabled=False)) == {}


def test_sources_are_told_with_their_cost() -> None:
    status = TelemetryStatus(
        enabled=True,
        sources=[
            source(),
            source(source="dcgm x", error="gone"),
            source(source="y", looks_total=0),
        ],
    )
    found = numbers(status)
    assert found["mileage_telemetry_period_seconds"][("nvml",)] == 0.1
    assert found["mileage_telemetry_cpu_ratio"][("nvml",)] == 0.004
    assert found["mileage_telemetry_up"] == {("nvml",): 1, ("dcgm x",): 0}


def test_figures_of_a_gpu_that_are_not_known_are_absent() -> None:
    rows = [
        GpuMinuteRow(
            host="n", gpu="0", minute_at_utc_s=60, sm_active_ratio=0.5, memory_used_bytes=8e9
        ),
        GpuMinuteRow(host="n", gpu="1", minute_at_utc_s=120, dram_active_ratio=0.0, power_w=300.0),
    ]
    found = numbers(TelemetryStatus(enabled=True, gpus=rows))
    assert found == {
        "mileage_gpu_sm_active_ratio": {("n", "0"): 0.5},
        "mileage_gpu_memory_used_bytes": {("n", "0"): 8e9},
        "mileage_gpu_dram_active_ratio": {("n", "1"): 0.0},
        "mileage_gpu_power_watts": {("n", "1"): 300.0},
        "mileage_gpu_minute_timestamp_seconds": {("n", "0"): 60, ("n", "1"): 120},
    }
