"""What the doctor reads of vLLM is what the installed one exports and writes into its log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SERIES = frozenset(
    {
        "vllm:admission_rejections",
        "vllm:cache_config_info",
        "vllm:inter_token_latency_seconds",
        "vllm:iteration_tokens_total",
        "vllm:lora_requests_info",
        "vllm:mm_cache_hits",
        "vllm:mm_cache_queries",
        "vllm:request_generation_tokens",
        "vllm:request_params_max_tokens",
        "vllm:request_params_n",
        "vllm:request_prompt_tokens",
        "vllm:request_queue_time_seconds",
        "vllm:request_success",
        "vllm:spec_decode_num_accepted_tokens",
        "vllm:spec_decode_num_draft_tokens",
        "vllm:spec_decode_num_drafts",
        "vllm:time_to_first_token_seconds",
    }
)
"""Without the `_total` that the client library adds to counters."""
LABELS = frozenset(
    {
        "block_size",
        "cache_dtype",
        "enable_prefix_caching",
        "gpu_memory_utilization",
        "kv_cache_max_concurrency",
    }
)
LINES = (
    ("v1/engine/core.py", "Initializing a V1 LLM engine (v%s) with config: %s"),
    ("v1/engine/core.py", "init engine (profile, create kv cache, warmup model) took "),
    ("v1/core/kv_cache_utils.py", "%s KV cache size: %s tokens, "),
    ("v1/core/kv_cache_utils.py", "Maximum concurrency for %s tokens per request: %.2fx"),
    ("v1/worker/gpu_worker.py", "Available KV cache memory: %s GiB"),
    ("v1/worker/gpu_model_runner.py", "Graph capturing finished in %.0f secs"),
    ("v1/worker/gpu_model_runner.py", "Model loading took %s GiB memory and %.6f seconds"),
    ("v1/metrics/loggers.py", "Avg generation throughput: %.1f tokens/s"),
    ("v1/metrics/loggers.py", "Preemptions: %d"),
    ("v1/spec_decode/metrics.py", "Mean acceptance length: %.2f, "),
    ("compilation/backends.py", "Dynamo bytecode transform time: %.2f s"),
    ("compilation/backends.py", "Compiling a graph for compile range %s takes %.2f s"),
    ("compilation/monitor.py", "torch.compile took %.2f s in total"),
    ("model_executor/model_loader/default_loader.py", "Loading weights took %.2f seconds"),
    ("model_executor/model_loader/weight_utils.py", "Filesystem type for checkpoints: %s."),
    ("config/model.py", "Using max model len %s"),
    ("config/scheduler.py", "Chunked prefill is enabled with max_num_batched_tokens=%d"),
    ("tokenizers/registry.py", "Using a slow tokenizer"),
    ("distributed/device_communicators/custom_all_reduce.py", "Custom allreduce is disabled"),
)
"""Where each line is written, and its format."""


@pytest.fixture(scope="module")
def package(vllm_python: Path) -> Path:
    """The directory of the installed vLLM."""
    (found,) = vllm_python.parent.parent.glob("lib/python3.*/site-packages/vllm")
    return found


def test_series(package: Path) -> None:
    sources = (package / "v1").rglob("metrics*/*.py"), (package / "v1").rglob("metrics.py")
    text = "".join(path.read_text("utf-8") for paths in sources for path in paths)
    assert set(re.findall(r'"(vllm:\w+)"', text)) >= SERIES


def test_labels_of_the_cache(package: Path) -> None:
    source = (package / "config" / "cache.py").read_text("utf-8")
    assert set(re.findall(r"^    (\w+): ", source, re.MULTILINE)) >= LABELS


@pytest.mark.parametrize(("file", "line"), LINES)
def test_log_lines(package: Path, file: str, line: str) -> None:
    assert line in (package / file).read_text("utf-8")
