"""Metrics pages of one engine, read over a window, as facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mileage.doctor.collect.engine_figures import (
    OTHER_TABLES,
    busy_all_along,
    figure_signals,
    in_system_change,
    restarts,
)
from mileage.doctor.collect.facts_document import FactsDocument, facts_document
from mileage.doctor.collect.http_metrics import request_signals
from mileage.doctor.collect.latency_metrics import latency_signals, length_workload
from mileage.doctor.collect.lora_metrics import lora_workload
from mileage.doctor.collect.merge_facts import overlay
from mileage.doctor.collect.metrics_settings import metrics_settings, pool_signals
from mileage.doctor.collect.page_window import PageWindow
from mileage.doctor.collect.process_metrics import process_signals
from mileage.doctor.collect.speculation_metrics import speculation_facts
from mileage.doctor.collect.triton_metrics import triton_signals
from mileage.doctor.collect.triton_roles import Role
from mileage.measure.engine_aliases import ALIASES, detect
from mileage.measure.metrics_page import Page
from mileage.measure.page_expressions import Series

__all__ = ["engine_metrics_facts", "engine_of"]

_TITLES: Final[Mapping[str, str]] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "trtllm": "tensorrt-llm",
    "triton": "triton",
    "llamacpp": "llama.cpp",
}
_PREFIXES: Final = (("tgi_", "tgi"), ("dynamo_", "dynamo"))
_V1: Final = ("vllm:kv_cache_usage_perc", "vllm:gpu_prefix_cache_queries_total")
_V0: Final = ("vllm:num_requests_swapped", "vllm:cpu_cache_usage_perc")
_STEPS: Final = ("vllm:iteration_tokens_total_count", "llamacpp:n_decode_total")
_COUNTED_AT_END: Final = frozenset({"sglang", "llama.cpp", "tensorrt-llm"})
"""Engines that add a request's tokens to their counters when it ends."""
_OWN_PREFIXES: Final = ("vllm_", "sglang_", "trtllm_", "pytrtllm_")
_MS_PER_S: Final = 1e3


def engine_of(page: Page) -> str | None:
    """The doctor's name of the engine that a page is from; None where that cannot be told."""
    for prefix, name in _PREFIXES:
        if any(series.startswith(prefix) for series in page.names()) and detect(page) is None:
            return name
    kind = detect(page)
    return None if kind is None else _TITLES[kind]


def engine_metrics_facts(
    window: PageWindow, roles: Mapping[str, Role] | None = None
) -> FactsDocument:
    """Facts of an engine by its own metrics; of no known engine, none.

    Of one page alone counters are taken since the engine's start: there are counts, means and
    quantiles, and no rates. `roles`: of the models of a Triton repository.
    """
    page = window.last
    name = None if page is None else engine_of(page)
    if page is None or name is None:
        return {}
    kind = detect(page)
    table = OTHER_TABLES.get(name, {}) if kind is None else ALIASES[kind]
    signals: dict[str, Any] = {
        **figure_signals(window, table),
        **latency_signals(window),
        **request_signals(window, in_system_change(window, table)),
        **pool_signals(page),
        **process_signals(window, is_frontend=name == "vllm" and _variant(page) == "v1"),
        **_without_none(_single_gauges(window, name)),
        "process_restarts_count": restarts(window, table),
    }
    if name in _COUNTED_AT_END and not signals.get("output_tokens_per_s"):
        signals |= _unended_rates(window, signals)
    if name == "triton":
        signals |= _without_none(triton_signals(window, roles))
    if name == "llama.cpp":
        signals |= _llamacpp(window)
    if busy_all_along(window, table) and (step_s := _step_time_s(window)) is not None:
        signals["step_time_s"] = step_s
    return overlay(
        facts_document(
            engine={"name": name, "variant": _variant(page)},
            model={"name": _model(page)},
            settings=metrics_settings(window),
            workload=length_workload(window) | lora_workload(window),
            signals=signals,
        ),
        speculation_facts(window),
    )


def _variant(page: Page) -> str | None:
    """vLLM's generation, by series that only one of them has."""
    if any(page.samples(name) for name in _V1):
        return "v1"
    return "v0" if any(page.samples(name) for name in _V0) else None


def _model(page: Page) -> str | None:
    """The one model that all series of the page name."""
    names = {
        sample.labels[label]
        for series in page.names()
        for sample in page.samples(series)
        for label in ("model_name", "name")
        if label in sample.labels
        and series.startswith(("vllm_", "sglang_", "trtllm_", "pytrtllm_"))
    }
    return names.pop() if len(names) == 1 else None


def _step_time_s(window: PageWindow) -> float | None:
    """Time by steps: an engine that runs a request steps without a pause."""
    for name in _STEPS:
        steps = [grown for _, grown in window.series(name)]
        if steps and sum(steps) > 0 and window.seconds is not None:
            return window.seconds * len(steps) / sum(steps)
    return None


def _unended_rates(window: PageWindow, signals: Mapping[str, Any]) -> dict[str, Any]:
    """Rates of a window in which requests ran and none ended: not 0, but not known.

    SGLang tells the speed of its last steps; while it idles it is that of long ago.
    """
    names = ("prompt_tokens_per_s", "output_tokens_per_s", "total_tokens_per_s")
    running = signals.get("requests_running") or 0
    if not any(running if isinstance(running, list) else [running]):
        return {}
    speed = _above_zero(window, "sglang:gen_throughput")
    return dict.fromkeys(names) | {"output_tokens_per_s": speed}


def _single_gauges(window: PageWindow, name: str) -> dict[str, Any]:
    """Figures that one engine alone tells as a gauge, where it is above 0: 0 is not known."""
    signals: dict[str, Any] = {}
    if name == "sglang":
        signals["startup_total_s"] = _above_zero(window, "sglang:engine_startup_time")
        signals["startup_weights_s"] = _above_zero(window, "sglang:engine_load_weights_time")
        transfer_ms = _above_zero(window, "sglang:kv_transfer_latency_ms")
        if transfer_ms is not None:
            signals["kv_transfer_s"] = transfer_ms / _MS_PER_S
        signals["graph_replay_ratio"] = _graph_replays(window)
    if name == "tensorrt-llm":
        signals["step_time_s"] = _above_zero(window, "trtllm_iteration_latency_seconds")
        used = _above_zero(window, "trtllm_gpu_memory_usage_bytes")
        signals["gpu_mem_used_gb"] = None if used is None else used / 1e9
    hits, queries = (
        window.named_increase(f"vllm:mm_cache_{word}_total") for word in ("hits", "queries")
    )
    if hits is not None and queries and hits <= queries:
        signals["mm_cache_hit_ratio"] = hits / queries
    return signals


def _graph_replays(window: PageWindow) -> float | None:
    """Share of SGLang's decode passes that ran from a CUDA graph."""
    passes = window.by_label("sglang:cuda_graph_passes_total", "mode")
    decodes = {mode: grown for mode, grown in passes.items() if mode.startswith("decode")}
    total = sum(decodes.values())
    return None if total <= 0 else 1 - decodes.get("decode_none", 0.0) / total


def _llamacpp(window: PageWindow) -> dict[str, Any]:
    """Decode speed that one request sees: seconds are summed over requests."""
    tokens = window.named_increase("llamacpp:tokens_predicted_total")
    spent_s = window.named_increase("llamacpp:tokens_predicted_seconds_total")
    if not tokens or not spent_s:
        return {}
    return {"output_tokens_per_s_per_request": tokens / spent_s, "itl_mean_s": spent_s / tokens}


def _above_zero(window: PageWindow, name: str) -> float | None:
    values = [value for values in window.gauge(Series(name)).values() for value in values]
    known = [value for value in values if value > 0]
    return sum(known) / len(known) if known else None


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
