"""Requests that ended, failed and came in a window, out of an engine's counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mileage.doctor.collect.page_window import PageWindow

__all__ = ["request_signals"]

_ENDED: Final = (
    "vllm:request_success_total",
    "trtllm_request_success_total",
    "sglang:num_requests_total",
    "pytrtllm:request_completed_total",
    "tgi_request_success",
)
_REASON: Final = "finished_reason"
_BROKEN_OFF: Final = frozenset({"abort", "error", "cancelled", "timeout"})
_FAILED: Final = ("pytrtllm:request_failed_total", "tgi_request_failure")
_REJECTED: Final = "vllm:admission_rejections_total"
_HTTP: Final = ("http_requests_total", "sglang:http_responses_total")
_STATUS: Final = ("status", "status_code", "code")
_PATH: Final = ("handler", "endpoint", "path")
_NOT_SERVED: Final = ("/health", "/metrics", "/ping", "/ready", "/live", "/version")
"""Paths that probes ask: a 503 there while a model loads is no request that failed."""


def request_signals(window: PageWindow, in_system_change: float | None) -> dict[str, Any]:
    """Completed, failed, rejected and arriving requests.

    `in_system_change`: how many more run or wait at the window's end than at its begin; what came
    is what ended and what was added. Unknown where requests that were broken off are not counted.
    """
    signals: dict[str, Any] = {}
    reasons = _ended_by_reason(window)
    if reasons is not None:
        completed = sum(grown for reason, grown in reasons.items() if reason not in _BROKEN_OFF)
        signals["requests_completed_count"] = round(completed)
        if window.seconds is not None:
            signals["requests_per_s"] = completed / window.seconds
            if in_system_change is not None and _BROKEN_OFF & reasons.keys():
                came = sum(reasons.values()) + in_system_change
                signals["requests_per_s_arriving"] = max(0.0, came) / window.seconds
    failed = _failed(window, reasons or {})
    if failed is not None and window.seconds is not None:
        signals["requests_failed_per_s"] = failed / window.seconds
    signals |= _http(window)
    rejected = window.named_increase(_REJECTED)
    if rejected:  # they are among the statuses, but those come in groups
        signals["http_429_count"] = round(rejected)
    return signals


def _ended_by_reason(window: PageWindow) -> dict[str, float] | None:
    """Growth by reason ('' where the engine tells none); None where it does not count."""
    for name in _ENDED:
        by_reason = window.by_label(name, _REASON)
        if by_reason:
            return by_reason
        grown = window.named_increase(name)
        if grown is not None:
            return {"": grown}
    return None


def _failed(window: PageWindow, reasons: Mapping[str, float]) -> float | None:
    if "error" in reasons:
        return reasons["error"]
    counted = (window.named_increase(name) for name in _FAILED)
    return next((grown for grown in counted if grown is not None), None)


def _http(window: PageWindow) -> dict[str, Any]:
    """Answers with 429 and with 5xx. Statuses may come in groups (`4xx`): then 429 is known only
    to be none, where there was none of its group."""
    for name in _HTTP:
        grown: dict[str, float] = {}
        for labels, value in window.series(name):
            status = next((labels[key].lower() for key in _STATUS if key in labels), None)
            path = next((labels[key] for key in _PATH if key in labels), "")
            if status is not None and not path.startswith(_NOT_SERVED):
                grown[status] = grown.get(status, 0.0) + value
        if grown:
            broken = sum(count for status, count in grown.items() if status.startswith("5"))
            return {
                "http_429_count": round(grown.get("429", 0.0)) if not grown.get("4xx") else None,
                "http_5xx_count": round(broken),
            }
    return {}
