"""Settings that an engine tells on its metrics page: in labels of info series, in gauges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mileage.doctor.collect.facts_document import whole
from mileage.doctor.collect.page_window import PageWindow
from mileage.doctor.collect.setting_values import (
    as_count,
    as_flag,
    as_number,
    as_ratio,
    kv_dtype,
)
from mileage.measure.metrics_page import Page
from mileage.measure.page_expressions import Series

__all__ = ["metrics_settings", "pool_signals"]

_GIB: Final = 1024.0**3


def _gib_of_bytes(text: str) -> float | None:
    value = as_number(text)
    return None if value is None else whole(value / _GIB)


_Read = Callable[[str], Any]
_LABELS: Final[tuple[tuple[str, str, str, _Read], ...]] = (
    ("vllm:cache_config_info", "block_size", "block_size", as_count),
    ("vllm:cache_config_info", "cache_dtype", "kv_cache_dtype", kv_dtype),
    ("vllm:cache_config_info", "gpu_memory_utilization", "gpu_memory_utilization", as_ratio),
    ("vllm:cache_config_info", "enable_prefix_caching", "enable_prefix_caching", as_flag),
    ("vllm:cache_config_info", "cpu_offload_gb", "cpu_offload_gb", as_number),
    ("vllm:cache_config_info", "swap_space_bytes", "swap_space", _gib_of_bytes),
    ("sglang:cache_config_info", "page_size", "block_size", as_count),
    ("trtllm_kv_cache_config_info", "page_size", "block_size", as_count),
    ("trtllm_kv_cache_config_info", "enable_block_reuse", "enable_prefix_caching", as_flag),
    ("trtllm_kv_cache_config_info", "cache_dtype", "kv_cache_dtype", kv_dtype),
    ("trtllm_parallel_config_info", "tensor_parallel_size", "tensor_parallel_size", as_count),
    ("trtllm_parallel_config_info", "tp_size", "tensor_parallel_size", as_count),
    ("trtllm_parallel_config_info", "pipeline_parallel_size", "pipeline_parallel_size", as_count),
    ("trtllm_parallel_config_info", "pp_size", "pipeline_parallel_size", as_count),
    ("vllm:lora_requests_info", "max_lora", "max_loras", as_count),
)
"""Series, label, setting, and how its text is read."""

_GAUGES: Final[tuple[tuple[Series, str], ...]] = (
    (Series("trtllm_max_num_tokens_runtime"), "max_num_batched_tokens"),
    (Series("trtllm_max_batch_size_runtime"), "max_num_seqs"),
    (Series("trtllm_max_num_active_requests"), "max_num_seqs"),
    (Series("trtllm_kv_cache_tokens_per_block"), "block_size"),
    (Series("nv_trt_llm_request_metrics", "request_type", "max"), "max_num_seqs"),
    (
        Series("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "tokens_per"),
        "block_size",
    ),
    (Series("sglang:lora_pool_slots_total"), "max_loras"),
    (Series("dynamo_frontend_model_max_num_seqs"), "max_num_seqs"),
    (Series("dynamo_frontend_model_max_num_batched_tokens"), "max_num_batched_tokens"),
    (Series("dynamo_frontend_model_context_length"), "max_model_len"),
    (Series("dynamo_frontend_model_kv_cache_block_size"), "block_size"),
)


def metrics_settings(window: PageWindow) -> dict[str, Any]:
    """Settings by name; one that differs between the schedulers of a page is left out."""
    page = window.last
    if page is None:
        return {}
    settings: dict[str, Any] = {}
    for name, label, setting, read in _LABELS:
        value = _agreed({read(text) for text in _texts(page, name, label)})
        if value is not None:
            settings.setdefault(setting, value)
    for series, setting in _GAUGES:
        values = {values[-1] for values in window.gauge(series).values() if values[-1] > 0}
        if len(values) == 1:
            settings.setdefault(setting, whole(values.pop()))
    if "max_loras" in settings:
        settings["enable_lora"] = True
    return settings


def pool_signals(page: Page) -> Mapping[str, Any]:
    """What the page says about the KV pool beside its size in tokens."""
    texts = _texts(page, "vllm:cache_config_info", "kv_cache_max_concurrency")
    value = _agreed({as_number(text) for text in texts})
    return {} if value is None else {"kv_max_concurrency": value}


def _texts(page: Page, name: str, label: str) -> list[str]:
    return [sample.labels[label] for sample in page.samples(name) if label in sample.labels]


def _agreed(values: set[Any]) -> Any:
    known = {value for value in values if value is not None}
    return known.pop() if len(known) == 1 else None
