"""Metric families of the configuration: its version, and its reloads."""

from __future__ import annotations

from mileage.gateway.admin.reload import ConfigStatus
from mileage.measure.metrics import Counter, FamilySnapshot, Gauge

__all__ = ["config_families"]


def config_families(config: ConfigStatus | None) -> list[FamilySnapshot]:
    """The families; none where the configuration cannot change."""
    if config is None:
        return []
    version = Gauge(
        "mileage_config_version", "Version of the configuration in force; 1 at the start."
    )
    reloads = Counter(
        "mileage_config_reloads_total", "Reloads of the configuration that were done."
    )
    failures = Counter(
        "mileage_config_reload_failures_total",
        "Reloads that were refused: the configuration was not in order.",
    )
    ok = Gauge("mileage_config_last_reload_ok", "0 where the last reload was refused, else 1.")
    read = Gauge(
        "mileage_config_last_success_timestamp_seconds",
        "When the configuration in force was last found to be what is written, since 1970.",
    )
    restart = Gauge(
        "mileage_config_restart_needed",
        "Keys that are written otherwise than they are in force: they need a restart.",
    )
    version.set(config.version)
    reloads.add((), config.reloads_total)
    failures.add((), config.failures_total)
    ok.set(int(config.error is None))
    read.set(config.read_utc_s)
    restart.set(len(config.restart_needed))
    families: tuple[Counter | Gauge, ...] = (version, reloads, failures, ok, read, restart)
    return [family.snapshot() for family in families]
