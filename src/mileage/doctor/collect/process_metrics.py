"""The process that serves a metrics page, by what Prometheus' client tells of it."""

from __future__ import annotations

from typing import Any, Final

from mileage.doctor.collect.page_window import PageWindow
from mileage.measure.page_expressions import Series

__all__ = ["process_signals"]

_CPU: Final = "process_cpu_seconds_total"
_MEMORY: Final = Series("process_resident_memory_bytes")
_GROWTH_WINDOW_MIN_S: Final = 600.0
"""Over less a slope in memory is noise: allocators grow in steps."""


def process_signals(window: PageWindow, *, is_frontend: bool) -> dict[str, Any]:
    """Age, CPU and memory growth of the process.

    `is_frontend`: it is an API server beside the engine's own process (vLLM since 0.6). Its memory
    is then a part of what serves, so only the growth is told; of an unknown process, neither.
    """
    signals: dict[str, Any] = {}
    started = window.started_at_utc_s()
    read_at = next((at.at_utc_s for at in reversed(window.pages) if at.at_utc_s is not None), None)
    if started is not None and read_at is not None and read_at >= started:
        signals["process_uptime_s"] = read_at - started
    cpu_s = window.named_increase(_CPU)
    if is_frontend and cpu_s is not None and window.seconds is not None:
        signals["frontend_process_cpu_ratio"] = cpu_s / window.seconds
    if (
        window.seconds is not None
        and window.seconds >= _GROWTH_WINDOW_MIN_S
        and not window.restarts(())
    ):
        signals["host_rss_growth_gb_per_h"] = _growth(window)
    return signals


def _growth(window: PageWindow) -> float | None:
    """Slope of the resident memory by least squares, GB per hour; None for less than 3 points."""
    points = [
        (at.at_s, value)
        for at in window.pages
        for value in _MEMORY.read(at.page).values()
        if value is not None
    ]
    if len(points) < 3:
        return None
    mean_s = sum(at_s for at_s, _ in points) / len(points)
    mean = sum(value for _, value in points) / len(points)
    spread = sum((at_s - mean_s) ** 2 for at_s, _ in points)
    if spread <= 0:
        return None
    slope = sum((at_s - mean_s) * (value - mean) for at_s, value in points) / spread
    return slope * 3600 / 1e9
