"""Changes that are no single option of an engine, in words: how each engine is told them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mileage.doctor.vocabulary import KEYS, SECTIONS

__all__ = ["meant_by", "plain_value", "words_of"]

ANY: Final = "*"

WORDS: Final[Mapping[tuple[str, str, str], str]] = {
    ("vllm", "tokenizer_threads", ANY): "--renderer-num-workers {value} (--api-server-count in"
    " releases without it)",
    ("vllm", "mm_processor_workers", ANY): "--api-server-count {value} (the API servers prepare"
    " media)",
    ("vllm", "logprobs", ANY): "logprobs: {value} in the requests (--max-logprobs {value} refuses"
    " more)",
    ("vllm", "scheduler.admission", "full_prompt"): "--scheduler-reserve-full-isl (on by itself in"
    " releases that have it)",
    ("vllm", "scheduler.policy", "guaranteed_no_evict"): "a lower --max-num-seqs",
    ("vllm", "dp_balancer.mode", "external"): "--data-parallel-external-lb for each rank, and a"
    " router before them",
    ("vllm", "hpa.metric", "requests_waiting"): "scale by vllm:num_requests_waiting",
    ("sglang", "mm_processor_workers", ANY): "export SGLANG_CPU_WORKERS={value}",
    ("sglang", "logprobs", ANY): "top_logprobs_num: {value} in the requests",
    ("sglang", "safetensors_load_strategy", "eager"): "--weight-loader-disable-mmap",
    ("sglang", "enable_expert_parallel", "true"): "--ep-size, as large as --tp-size",
    ("sglang", "enable_chunked_prefill", "true"): "--chunked-prefill-size 8192",
    ("sglang", "enable_chunked_prefill", "false"): "--chunked-prefill-size -1",
    ("sglang", "scheduler.policy", "guaranteed_no_evict"): "--schedule-conservativeness above 1",
    ("sglang", "scheduler.admission", "full_prompt"): "--schedule-conservativeness above 1",
    ("sglang", "dp_balancer.mode", "external"): "a server for each rank, and SGLang's router"
    " before them",
    ("sglang", "hpa.metric", "requests_waiting"): "scale by sglang:num_queue_reqs",
    ("tensorrt-llm", "enable_expert_parallel", "true"): "--ep_size, as large as --tp_size",
    ("tensorrt-llm", "data_parallel_size", ANY): "{value} servers behind a router",
    ("tensorrt-llm", "scheduler.admission", "full_prompt"): "scheduler_config."
    "capacity_scheduler_policy: GUARANTEED_NO_EVICT",
    ("llama.cpp", "data_parallel_size", ANY): "{value} servers behind a router",
    ("llama.cpp", "enforce_eager", "false"): "unset GGML_CUDA_DISABLE_GRAPHS",
    (ANY, "logprobs", ANY): "top_logprobs: {value} in the requests",
    (ANY, "hpa.metric", "requests_waiting"): "scale by the requests that wait at each replica",
    (ANY, "router.policy", "cache_aware"): "a router that follows prefixes (--policy cache_aware"
    " of SGLang's, --routing-logic prefixaware of vLLM's, routing.affinity of Mileage)",
    (ANY, "router.load_term", "true"): "a router that weighs the load of replicas, too",
}
"""Engine, setting and value (`ANY`: whichever) -> what is to be done."""


def words_of(family: str | None, setting: str, value: float | bool | str | None) -> str | None:
    """What to do where the engine has no option of its own for it; None where it may have one."""
    written = plain_value(value)
    for engine in (family or "", ANY):
        for wanted in (written, ANY):
            words = WORDS.get((engine, setting, wanted))
            if words is not None:
                return words.format(value=written)
    return None


def meant_by(setting: str, value: float | bool | str | None) -> str:
    """`requests that may run at once: 16`: what the vocabulary says that the name stands for."""
    section, name = KEYS[setting]
    meaning = SECTIONS[section][name].meaning.partition(";")[0].partition(":")[0]
    return f"{meaning}: {plain_value(value)}"


def plain_value(value: float | bool | str | None) -> str:
    """As it is written on a command line or in a manifest."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
