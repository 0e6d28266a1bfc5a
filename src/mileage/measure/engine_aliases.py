"""Alias table: by which names, and from which series, each kind of engine reports each figure.

Of the expressions for a figure the first that gives a possible value counts, so newer names stand
before older ones. Sources: the exporters' code of vLLM 0.32, SGLang 0.5, TensorRT-LLM 1.x and
llama.cpp of 2026-10, and public dumps of their older releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from mileage.measure.metrics_page import Page, normal_name
from mileage.measure.page_expressions import Binary, Expression, Label, Percent, Series

__all__ = ["ALIASES", "NAMES", "RATIOS", "Figure", "KnownKind", "Table", "detect"]

KnownKind = Literal["vllm", "sglang", "trtllm", "triton", "llamacpp"]

Figure = Literal[
    "running",
    "waiting",
    "running_max",
    "kv_cache_usage_ratio",
    "kv_tokens_max",
    "prefix_cache_hit_tokens_total",
    "prefix_cache_query_tokens_total",
    "prefix_cache_hit_ratio",
    "preemptions_total",
    "prompt_tokens_total",
    "output_tokens_total",
]
"""The fields of ReplicaView that a scrape may know."""

RATIOS: frozenset[Figure] = frozenset({"kv_cache_usage_ratio", "prefix_cache_hit_ratio"})
"""Figures in 0..1; all others are counts, which add up over schedulers."""

Table: TypeAlias = Mapping[Figure, tuple[Expression, ...]]

_VLLM_BLOCK = Label("vllm:cache_config_info", "block_size")
_VLLM: Table = {
    "running": (Series("vllm:num_requests_running"),),
    "waiting": (Series("vllm:num_requests_waiting"),),
    "kv_cache_usage_ratio": (
        Series("vllm:kv_cache_usage_perc"),
        Series("vllm:gpu_cache_usage_perc"),
    ),
    # The product is wrong for hybrid models, whose requests hold blocks of several groups.
    "kv_tokens_max": (
        Label("vllm:cache_config_info", "kv_cache_size_tokens"),
        Binary(Label("vllm:cache_config_info", "num_gpu_blocks"), "×", _VLLM_BLOCK),
    ),
    # Under the gpu_ names 0.8 counted blocks and 0.9 tokens; the HELP text says which.
    "prefix_cache_hit_tokens_total": (
        Series("vllm:prefix_cache_hits_total"),
        Series("vllm:gpu_prefix_cache_hits_total", help_word="token"),
        Binary(Series("vllm:gpu_prefix_cache_hits_total", help_word="block"), "×", _VLLM_BLOCK),
    ),
    "prefix_cache_query_tokens_total": (
        Series("vllm:prefix_cache_queries_total"),
        Series("vllm:gpu_prefix_cache_queries_total", help_word="token"),
        Binary(Series("vllm:gpu_prefix_cache_queries_total", help_word="block"), "×", _VLLM_BLOCK),
    ),
    "prefix_cache_hit_ratio": (Series("vllm:gpu_prefix_cache_hit_rate"),),
    "preemptions_total": (Series("vllm:num_preemptions_total"),),
    "prompt_tokens_total": (Series("vllm:prompt_tokens_total"),),
    "output_tokens_total": (Series("vllm:generation_tokens_total"),),
}

_SGLANG: Table = {
    "running": (Series("sglang:num_running_reqs"),),
    "waiting": (Series("sglang:num_queue_reqs"), Series("sglang:queue_req")),
    "kv_cache_usage_ratio": (
        Series("sglang:token_usage"),
        Binary(Series("sglang:num_used_tokens"), "÷", Series("sglang:max_total_num_tokens")),
    ),
    "kv_tokens_max": (
        Series("sglang:max_total_num_tokens"),
        Binary(
            Label("sglang:cache_config_info", "num_pages"),
            "×",
            Label("sglang:cache_config_info", "page_size"),
        ),
    ),
    "prefix_cache_hit_tokens_total": (Series("sglang:cached_tokens_total"),),
    "prefix_cache_query_tokens_total": (Series("sglang:prompt_tokens_total"),),
    # Builds of 2024 gave percent: known by a name of theirs, else by a value above 1.
    "prefix_cache_hit_ratio": (
        Percent(Series("sglang:cache_hit_rate"), beside="sglang:queue_req"),
        Series("sglang:cache_hit_rate"),
        Percent(Series("sglang:cache_hit_rate")),
    ),
    "preemptions_total": (Series("sglang:num_retracted_requests_total"),),
    "prompt_tokens_total": (Series("sglang:prompt_tokens_total"),),
    "output_tokens_total": (Series("sglang:generation_tokens_total"),),
}

# trtllm-serve has text under /prometheus/metrics and JSON under /metrics: names with a capital
# letter are paths in the newest of its JSON records. pytrtllm was the prefix first proposed.
_TRTLLM: Table = {
    "running": (
        Series("trtllm_num_requests_running"),
        Series("pytrtllm:num_requests_running"),
        Series("numActiveRequests"),
    ),
    "waiting": (
        Series("trtllm_num_requests_waiting"),
        Series("pytrtllm:num_requests_waiting"),
        Series("numQueuedRequests"),
    ),
    "running_max": (Series("trtllm_max_num_active_requests"), Series("maxNumActiveRequests")),
    "kv_cache_usage_ratio": (
        Series("trtllm_kv_cache_utilization"),
        Binary(Series("trtllm_kv_cache_used_blocks"), "÷", Series("trtllm_kv_cache_max_blocks")),
        Binary(Series("kvCacheStats.usedNumBlocks"), "÷", Series("kvCacheStats.maxNumBlocks")),
    ),
    "kv_tokens_max": (
        Binary(
            Series("trtllm_kv_cache_max_blocks"), "×", Series("trtllm_kv_cache_tokens_per_block")
        ),
        Binary(Series("kvCacheStats.maxNumBlocks"), "×", Series("kvCacheStats.tokensPerBlock")),
    ),
    "prefix_cache_hit_tokens_total": (Series("trtllm_prompt_cached_tokens_total"),),
    "prefix_cache_query_tokens_total": (Series("trtllm_prompt_tokens_total"),),
    "prefix_cache_hit_ratio": (
        Series("trtllm_kv_cache_hit_rate"),
        Series("kvCacheStats.cacheHitRate"),
    ),
    "prompt_tokens_total": (
        Series("trtllm_prompt_tokens_total"),
        Series("pytrtllm:prompt_tokens_total"),
    ),
    "output_tokens_total": (
        Series("trtllm_generation_tokens_total"),
        Series("pytrtllm:generation_tokens_total"),
    ),
}


def _triton_requests(request_type: str) -> Series:
    return Series("nv_trt_llm_request_metrics", "request_type", request_type)


def _triton_blocks(block_type: str) -> Series:
    return Series("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", block_type)


# Triton's vLLM backend passes vLLM's series on. Its own queue gauge is for any other backend.
_TRITON: Table = {
    "running": (_triton_requests("scheduled"), _triton_requests("active"), *_VLLM["running"]),
    "waiting": (
        _triton_requests("waiting"),
        *_VLLM["waiting"],
        Series("nv_inference_pending_request_count"),
    ),
    "running_max": (_triton_requests("max"),),
    "kv_cache_usage_ratio": (
        _triton_blocks("fraction"),
        Binary(_triton_blocks("used"), "÷", _triton_blocks("max")),
        *_VLLM["kv_cache_usage_ratio"],
    ),
    "kv_tokens_max": (
        Binary(_triton_blocks("max"), "×", _triton_blocks("tokens_per")),
        *_VLLM["kv_tokens_max"],
    ),
    "prefix_cache_hit_tokens_total": (
        Binary(_triton_blocks("reused"), "×", _triton_blocks("tokens_per")),
        *_VLLM["prefix_cache_hit_tokens_total"],
    ),
    "prefix_cache_query_tokens_total": _VLLM["prefix_cache_query_tokens_total"],
    "preemptions_total": _VLLM["preemptions_total"],
    "prompt_tokens_total": _VLLM["prompt_tokens_total"],
    "output_tokens_total": _VLLM["output_tokens_total"],
}

# llama.cpp counts prompt tokens without the cached ones, and those in recent builds only.
_LLAMACPP_PROMPT = Binary(
    Series("llamacpp:prompt_tokens_total"), "+", Series("llamacpp:prompt_tokens_cached_total")
)
_LLAMACPP: Table = {
    "running": (Series("llamacpp:requests_processing"),),
    "waiting": (Series("llamacpp:requests_deferred"),),
    "kv_cache_usage_ratio": (Series("llamacpp:kv_cache_usage_ratio"),),
    "prefix_cache_hit_tokens_total": (Series("llamacpp:prompt_tokens_cached_total"),),
    "prefix_cache_query_tokens_total": (_LLAMACPP_PROMPT,),
    "prompt_tokens_total": (_LLAMACPP_PROMPT, Series("llamacpp:prompt_tokens_total")),
    "output_tokens_total": (Series("llamacpp:tokens_predicted_total"),),
}

ALIASES: Mapping[KnownKind, Table] = {
    "vllm": _VLLM,
    "sglang": _SGLANG,
    "trtllm": _TRTLLM,
    "triton": _TRITON,
    "llamacpp": _LLAMACPP,
}

NAMES: frozenset[str] = frozenset(
    spelling
    for table in ALIASES.values()
    for expressions in table.values()
    for expression in expressions
    for name in expression.names()
    for spelling in (name, normal_name(name), normal_name(name).replace("_", ":", 1))
)
"""Every series name in the table, in each spelling that relays give it: all that is ever read."""

_PREFIXES: tuple[tuple[str, KnownKind], ...] = (
    ("nv_", "triton"),  # first: it may have its backend's series beside its own
    ("vllm_", "vllm"),
    ("sglang_", "sglang"),
    ("trtllm_", "trtllm"),
    ("pytrtllm_", "trtllm"),
    ("llamacpp_", "llamacpp"),
    ("num", "trtllm"),  # the JSON of trtllm-serve
)


def detect(page: Page) -> KnownKind | None:
    """The kind of engine that a page is from, by the prefix of its names; None: cannot tell."""
    for prefix, kind in _PREFIXES:
        if any(name.startswith(prefix) for name in page.names()):
            return kind
    return None
