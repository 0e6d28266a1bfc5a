"""Adapters that requests asked for in a window, by vLLM's LoRA series."""

from __future__ import annotations

from typing import Any, Final

from mileage.doctor.collect.page_window import PageWindow
from mileage.measure.metrics_page import possible

__all__ = ["lora_workload"]

_INFO: Final = "vllm:lora_requests_info"
_ADAPTERS: Final = ("running_lora_adapters", "waiting_lora_adapters")
_CLOCK_STEP_S: Final = 5.0
"""The engine's clock and ours may differ by so much."""


def lora_workload(window: PageWindow) -> dict[str, Any]:
    """Distinct adapters of requests that ran or waited.

    The series' value is the Unix time at which the engine last had just these adapters; it keeps
    the series of all combinations that it ever had. On each page the newest counts, and all that
    were set while the window was open.
    """
    first = next((at.at_utc_s for at in window.pages if at.at_utc_s is not None), None)
    adapters: set[str] = set()
    seen = False
    for at in window.pages:
        samples = [
            (value, sample)
            for sample in at.page.samples(_INFO)
            if (value := possible(sample.value)) is not None
        ]
        seen = seen or bool(samples)
        newest = max((value for value, _ in samples), default=0.0)
        for value, sample in samples:
            in_window = first is not None and value >= first - _CLOCK_STEP_S
            if value == newest or in_window:
                adapters |= {
                    name
                    for label in _ADAPTERS
                    for name in sample.labels.get(label, "").split(",")
                    if name
                }
    return {"lora_adapters": len(adapters)} if seen else {}
