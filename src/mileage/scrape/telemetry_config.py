"""Section `[telemetry]`: how a gateway looks at the GPUs of its engines."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_range

__all__ = ["TelemetryConfig"]


class TelemetryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Looking at the GPUs of engines with `dcgm_url` or `nvml`, and for the embedded engine at its
    processor: minutes of them go to the ledger, for `mileage trace heatmap` and `perfetto`."""

    enabled: bool = True
    """false: look at nothing beyond what routing needs."""
    period_s: float = 0.1
    """Between two looks. An exporter is asked once a second at most, whatever is written here."""
    cpu_ratio_max: float = 0.01
    """Of one core, for each source: where looking costs more, it is done less often."""

    def __post_init__(self) -> None:
        require_range("telemetry.period_s", self.period_s, 0.01, 60.0)
        require_range("telemetry.cpu_ratio_max", self.cpu_ratio_max, 0.0001, 1.0)
