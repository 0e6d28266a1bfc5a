"""Latencies and lengths of requests, out of an engine's histograms, in a window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mileage.doctor.collect.facts_document import whole
from mileage.doctor.collect.histogram_window import HistogramWindow, histogram_window
from mileage.doctor.collect.page_window import PageWindow

__all__ = ["latency_signals", "length_workload"]

_LATENCIES: Final[Mapping[str, tuple[str, ...]]] = {
    "ttft": (
        "vllm:time_to_first_token_seconds",
        "sglang:time_to_first_token_seconds",
        "trtllm_time_to_first_token_seconds",
        "dynamo_frontend_time_to_first_token_seconds",
    ),
    "itl": (
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
        "sglang:inter_token_latency_seconds",
        "sglang:time_per_output_token_seconds",
        "trtllm_time_per_output_token_seconds",
        "dynamo_frontend_inter_token_latency_seconds",
        "tgi_request_mean_time_per_token_duration",
    ),
    "e2e": (
        "vllm:e2e_request_latency_seconds",
        "sglang:e2e_request_latency_seconds",
        "trtllm_e2e_request_latency_seconds",
        "dynamo_frontend_request_duration_seconds",
        "tgi_request_duration",
    ),
    "queue_time": (
        "vllm:request_queue_time_seconds",
        "sglang:queue_time_seconds",
        "trtllm_request_queue_time_seconds",
        "tgi_request_queue_duration",
    ),
}
"""Newer names before older ones. All are in seconds, TGI's too. vLLM called its gaps
time_per_output_token up to 0.10, SGLang up to 0.4; TensorRT-LLM's and TGI's are the mean of each
request."""

_QUANTILES: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_PROMPT: Final = (
    "vllm:request_prompt_tokens",
    "sglang:prompt_tokens_histogram",
    "dynamo_frontend_input_sequence_tokens",
    "tgi_request_input_length",
)
_OUTPUT: Final = (
    "vllm:request_generation_tokens",
    "sglang:generation_tokens_histogram",
    "dynamo_frontend_output_sequence_tokens",
    "tgi_request_generated_tokens",
)
_MAX_TOKENS: Final = ("vllm:request_params_max_tokens", "tgi_request_max_new_tokens")
_N: Final = ("vllm:request_params_n",)
_TRANSFER: Final = ("vllm:nixl_xfer_time_seconds",)


def latency_signals(window: PageWindow) -> dict[str, Any]:
    """Mean (exact) and quantiles (bounds: the bucket that each lies in), in seconds."""
    signals: dict[str, Any] = {}
    for kind, names in _LATENCIES.items():
        found = histogram_window(window, names)
        if found is None:
            continue
        signals[f"{kind}_mean_s"] = found.mean
        for word, q in _QUANTILES.items():
            signals[f"{kind}_{word}_s"] = found.quantile(q)
    transfer = histogram_window(window, _TRANSFER)
    if transfer is not None:
        signals["kv_transfer_s"] = transfer.mean
    return signals


def length_workload(window: PageWindow) -> dict[str, Any]:
    """Lengths of the requests that ended in the window: means; limits exact where all are one."""
    return {
        "isl_tokens": _mean(histogram_window(window, _PROMPT)),
        "osl_tokens": _mean(histogram_window(window, _OUTPUT)),
        "max_tokens": _common(histogram_window(window, _MAX_TOKENS)),
        "n": _common(histogram_window(window, _N)),
    }


def _mean(found: HistogramWindow | None) -> float | None:
    return None if found is None else found.mean


def _common(found: HistogramWindow | None) -> Any:
    """The value where all had the same one, for all that the histogram tells: they lie in one
    bucket, and their mean is a whole number. Else a bound."""
    if found is None or found.mean is None:
        return None
    extent = found.extent()
    filled = {edge for edge, seen in found.edges if seen > 0}
    one_bucket = bool(filled) and min(seen for _, seen in found.edges if seen > 0) == found.count
    return whole(found.mean) if one_bucket and found.mean.is_integer() else extent
