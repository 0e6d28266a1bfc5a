"""Triton in a window: executions, queueing and failures of the models of its repository."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mileage.doctor.collect.page_window import PageWindow
from mileage.doctor.collect.triton_roles import Role, triton_roles

__all__ = ["triton_signals"]

_EXECUTIONS: Final = "nv_inference_exec_count"
_QUEUED_US: Final = "nv_inference_queue_duration_us"
_REQUESTS: Final = "nv_inference_request_success"
_FAILURES: Final = "nv_inference_request_failure"
_TRANSFER: Final = "nv_trt_llm_disaggregated_serving_metrics"
_TRANSFER_TYPE: Final = "disaggregated_serving_type"
_US_PER_S: Final = 1e6
_MS_PER_S: Final = 1e3


def triton_signals(window: PageWindow, roles: Mapping[str, Role] | None = None) -> dict[str, Any]:
    """Signals by name; `roles` of its models, by their names where they are not given.

    Queue times are summed over requests, in seconds (Triton counts microseconds).
    """
    executions = window.by_label(_EXECUTIONS, "model")
    queued_us = window.by_label(_QUEUED_US, "model")
    known = roles if roles is not None else triton_roles(executions)
    front = _front(executions, known)
    ended = window.by_label(_REQUESTS, "model")
    failed = window.by_label(_FAILURES, "model")
    signals: dict[str, Any] = {
        "triton_exec_infer_count": _count(executions, known, "engine"),
        "triton_exec_postprocess_count": _count(executions, known, "postprocess"),
        "triton_queue_postprocess_s": _seconds(queued_us, known, "postprocess"),
        "triton_queue_preprocess_s": _seconds(queued_us, known, "preprocess"),
    }
    if front is not None and front in ended:
        signals["requests_completed_count"] = round(ended[front])
        if window.seconds is not None:
            signals["requests_per_s"] = ended[front] / window.seconds
    if failed and window.seconds is not None:
        # An ensemble fails where one of its steps does: each request counts once, with the most.
        signals["requests_failed_per_s"] = max(failed.values()) / window.seconds
    return {**signals, **_transfer(window)}


def _front(models: Iterable[str], roles: Mapping[str, Role]) -> str | None:
    """The model that clients call: the one frame, or the only engine where there is no frame."""
    for role in ("frame", "engine"):
        found = [name for name in models if roles.get(name) == role]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _transfer(window: PageWindow) -> dict[str, Any]:
    grown = window.by_label(_TRANSFER, _TRANSFER_TYPE)
    requests, spent_ms = grown.get("request_count"), grown.get("kv_cache_transfer_ms")
    if not requests or spent_ms is None:
        return {}
    return {"kv_transfer_s": spent_ms / _MS_PER_S / requests}


def _count(grown: Mapping[str, float], roles: Mapping[str, Role], role: Role) -> int | None:
    found = _sum(grown, roles, role)
    return None if found is None else round(found)


def _seconds(grown_us: Mapping[str, float], roles: Mapping[str, Role], role: Role) -> float | None:
    found = _sum(grown_us, roles, role)
    return None if found is None else found / _US_PER_S


def _sum(grown: Mapping[str, float], roles: Mapping[str, Role], role: Role) -> float | None:
    found = [value for name, value in grown.items() if roles.get(name) == role]
    return sum(found) if found else None
