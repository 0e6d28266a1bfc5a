"""What an engine does where its command line says nothing: defaults that are certain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mileage.doctor.collect.facts_document import FactsDocument, facts_document

__all__ = ["launch_defaults"]

_VLLM: Final[Mapping[str, Any]] = {
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "enable_expert_parallel": False,
    "enforce_eager": False,
    "cpu_offload_gb": 0,
    "enable_lora": False,
    "kv_cache_dtype": "auto",
    "quantization": None,
    "speculative.method": None,
}
"""Of every release that has them (0.6 to 0.32)."""
_VLLM_V0: Final[Mapping[str, Any]] = {
    "max_num_seqs": 256,
    "enable_prefix_caching": False,
    "swap_space": 4,
    "block_size": 16,
    "gpu_memory_utilization": 0.9,
}
"""Of the V0 engine, that is up to 0.7, and later where VLLM_USE_V1 is 0. V1 chooses by the model
and the card: what it chose is on its metrics page and in its log."""
_SGLANG: Final[Mapping[str, Any]] = {
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "enforce_eager": False,
    "enable_prefix_caching": True,
    "quantization": None,
    "speculative.method": None,
    "disaggregation_mode": "none",
    "tokenizer_threads": 1,
}
_TRTLLM: Final[Mapping[str, Any]] = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1}
_LLAMACPP: Final[Mapping[str, Any]] = {
    "quantization": None,
    "speculative.method": None,
    "enable_lora": False,
}
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "vllm": _VLLM,
    "sglang": _SGLANG,
    "tensorrt-llm": _TRTLLM,
    "llama.cpp": _LLAMACPP,
}
_LORA: Final[Mapping[str, Mapping[str, Any]]] = {"vllm": {"max_loras": 1, "max_lora_rank": 16}}
"""Where adapters are on."""


def launch_defaults(
    engine: str, settings: Mapping[str, Any], *, variant: str | None = None
) -> FactsDocument:
    """Settings that the command line left to the engine; `settings` are those that it gave.

    Only for a command line that is known whole. `variant` is v0 where that is known.
    """
    defaults = dict(_DEFAULTS.get(engine, {}))
    if engine == "vllm" and variant == "v0":
        defaults |= _VLLM_V0
    if settings.get("enable_lora") is True:
        defaults |= _LORA.get(engine, {})
    return facts_document(
        settings={name: value for name, value in defaults.items() if name not in settings}
    )
