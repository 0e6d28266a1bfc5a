"""GatewayTelemetry: looks at GPUs of a gateway's engines, where it is told where they are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from mileage.cli.telemetry_watches import Place, Spec, Watches
from mileage.engines.remote import RemoteEngine
from mileage.gateway.admin.telemetry import (
    GPUS_MAX,
    GpuMinuteRow,
    TelemetrySourceRow,
    TelemetryStatus,
)
from mileage.scrape.telemetry_config import TelemetryConfig
from mileage.storage.gpu_minutes import GpuMinute

__all__ = ["GatewayTelemetry"]

_MINUTE_AGE_MAX_S: Final = 180.0
"""From the begin of a minute on: an older one is no figure of now."""
_HIGHEST: Final = "memory_used_bytes"
_FIGURES: Final = tuple(
    name
    for name in GpuMinuteRow.__struct_fields__
    if name not in ("host", "gpu", "minute_at_utc_s")
)


class GatewayTelemetry:
    """Tells where to look, and keeps what was seen last.

    `store` takes the minutes that have ended, in a thread. `own_engine`: there is an engine of our
    own, whose processor is looked at in place of a GPU. `watch` makes what looks, given what takes
    its minutes. No method but `stop` blocks.
    """

    def __init__(
        self,
        store: Callable[[Sequence[GpuMinute]], None],
        watch: Callable[[Callable[[Sequence[GpuMinute]], None]], Watches],
        *,
        own_engine: bool = False,
        utc_s: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._own_engine, self._utc_s = store, own_engine, utc_s
        self._enabled = False
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str], GpuMinuteRow] = {}
        self._watches = watch(self._take)

    def configure(self, config: TelemetryConfig, engines: Sequence[RemoteEngine]) -> None:
        """Look where these engines say, and nowhere else; what stays the same goes on."""
        self._enabled = config.enabled
        places = self._places(engines) if config.enabled else []
        self._watches.configure(
            [Spec(place, config.period_s, config.cpu_ratio_max) for place in places]
        )

    def stop(self) -> None:
        """End, and tell the minutes that are open; waits a few seconds at most."""
        self._watches.stop()

    def status(self, *, dropped_total: int = 0, error: str | None = None) -> TelemetryStatus:
        """How it goes, now; what is given is the ledger's."""
        since_s = self._utc_s() - _MINUTE_AGE_MAX_S
        with self._lock:
            gpus = sorted(self._last.items())
        return TelemetryStatus(
            enabled=self._enabled,
            sources=[
                TelemetrySourceRow(
                    source=name,
                    period_s=state.period_s,
                    cpu_ratio=state.cpu_ratio,
                    looks_total=state.looks,
                    failed_total=state.failed,
                    hanging_s=state.hanging_s,
                    error=state.error,
                )
                for name, state in self._watches.status().items()
            ],
            gpus=[row for _, row in gpus if row.minute_at_utc_s >= since_s][:GPUS_MAX],
            dropped_total=dropped_total,
            error=error,
        )

    def _places(self, engines: Sequence[RemoteEngine]) -> list[Place]:
        """Each exporter and this machine's driver once, with all GPUs that engines name there."""
        wanted: dict[tuple[str, str], list[tuple[str, ...]]] = {}
        for engine in engines:
            if engine.dcgm_url is not None:
                wanted.setdefault(("dcgm", engine.dcgm_url), []).append(engine.gpu_ids)
            elif engine.nvml:
                wanted.setdefault(("nvml", ""), []).append(engine.gpu_ids)
        places = [Place(kind, url, _union(gpu_ids)) for (kind, url), gpu_ids in wanted.items()]
        return [*places, Place("host")] if self._own_engine else places

    def _take(self, rows: Sequence[GpuMinute]) -> None:
        found: dict[tuple[str, str, int], dict[str, Any]] = {}
        for row in rows:
            figures = found.setdefault((row.host, row.gpu, row.minute_at_utc_s), {})
            if row.field in _FIGURES:
                figures[row.field] = row.max if row.field == _HIGHEST else row.mean
        since_s = self._utc_s() - _MINUTE_AGE_MAX_S
        with self._lock:
            for (host, gpu, minute), figures in found.items():
                known = self._last.get((host, gpu))
                if known is None or known.minute_at_utc_s <= minute:
                    self._last[host, gpu] = GpuMinuteRow(
                        host=host, gpu=gpu, minute_at_utc_s=minute, **figures
                    )
            for key, last in list(self._last.items()):
                if last.minute_at_utc_s < since_s:
                    del self._last[key]
        self._store(rows)


def _union(gpu_ids: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """All that are named, each once; all there are where one names none."""
    if () in gpu_ids:
        return ()
    return tuple(dict.fromkeys(gpu_id for some in gpu_ids for gpu_id in some))
