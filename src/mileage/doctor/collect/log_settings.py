"""Settings that an engine's log tells: its arguments, its configuration, single lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from mileage.doctor.collect.engine_arguments import argument_facts
from mileage.doctor.collect.facts_document import FactsDocument, facts_document
from mileage.doctor.collect.log_line import LogLine
from mileage.doctor.collect.merge_facts import overlay
from mileage.doctor.collect.python_text import read_fields, read_value
from mileage.doctor.collect.setting_values import as_count, as_ratio, as_text

__all__ = ["LogSettings", "effective_config"]

_VLLM_CONFIG: Final = re.compile(
    r"Initializing an? (?:(V[01]) )?LLM engine(?: \(v?([^)\s]+)\))? with config: "
)
_VLLM_VERSION: Final = re.compile(r"vLLM API server version v?([0-9][^\s,]*)")
_NON_DEFAULT: Final = "non-default args: "
_ARGS: Final = re.compile(r"\bargs: Namespace\(")
_SERVER_ARGS: Final = re.compile(r"server_args=ServerArgs\(")
_TRTLLM_VERSION: Final = re.compile(r"TensorRT-LLM version: ([0-9][^\s]*)")
_LLAMACPP_BUILD: Final = re.compile(r"\bbuild: (\d+) \(")
_KERNELS: Final = frozenset(
    {"awq", "awq_marlin", "gptq", "gptq_marlin", "gptq_bitblas", "marlin", "machete", "exllama"}
)
_KERNEL_FORCED: Final = re.compile(
    r"Detected that the model can run with (\w+), however you specified quantization=(\w+)"
)
_KERNEL_CHOSEN: Final = re.compile(r"convertible to (\w+) during runtime\. Using (\w+) kernel")


class _Line(NamedTuple):
    """A pattern whose one group is the text of a setting."""

    engine: str
    pattern: re.Pattern[str]
    setting: str
    read: Callable[[str], Any]


def _enabled(text: str) -> bool:
    return text == "enabled"


def _policy(text: str) -> str | None:
    word = text.lower()
    return word if word in ("guaranteed_no_evict", "max_utilization") else None


_LINES: Final[tuple[_Line, ...]] = (
    _Line(
        "vllm",
        re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)"),
        "max_num_batched_tokens",
        as_count,
    ),
    _Line("vllm", re.compile(r"Using max model len (\d+)"), "max_model_len", as_count),
    _Line(
        "vllm",
        re.compile(r"Maximum concurrency for ([\d,]+) tokens per request"),
        "max_model_len",
        as_count,
    ),
    _Line(
        "vllm",
        re.compile(r"kv_cache_size=.* gpu_memory_utilization=([\d.]+)"),
        "gpu_memory_utilization",
        as_ratio,
    ),
    _Line(
        "vllm", re.compile(r"Setting attention block size to (\d+) tokens"), "block_size", as_count
    ),
    _Line("sglang", re.compile(r"\bmax_running_requests=(\d+)"), "max_num_seqs", as_count),
    _Line("sglang", re.compile(r"\bcontext_len=(\d+)"), "max_model_len", as_count),
    _Line(
        "sglang", re.compile(r"\bchunked_prefill_size=(\d+)"), "max_num_batched_tokens", as_count
    ),
    _Line(
        "tensorrt-llm",
        re.compile(r"TRTGptModel maxBatchSize: (\d+)"),
        "max_num_seqs",
        as_count,
    ),
    _Line(
        "tensorrt-llm",
        re.compile(r"TRTGptModel maxNumTokens: (\d+)"),
        "max_num_batched_tokens",
        as_count,
    ),
    _Line(
        "tensorrt-llm",
        re.compile(r"TRTGptModel (?:computed )?maxSequenceLen: (\d+)"),
        "max_model_len",
        as_count,
    ),
    _Line("tensorrt-llm", re.compile(r"Number of tokens per block: (\d+)"), "block_size", as_count),
    _Line(
        "tensorrt-llm",
        re.compile(r"Capacity Scheduler Policy: (\w+)"),
        "scheduler.policy",
        _policy,
    ),
    _Line(
        "tensorrt-llm",
        re.compile(r"KV cache block reuse is (enabled|disabled)"),
        "enable_prefix_caching",
        _enabled,
    ),
    _Line("llama.cpp", re.compile(r"\bn_(?:seq_max|slots)\s*= (\d+)"), "max_num_seqs", as_count),
    _Line("llama.cpp", re.compile(r"\bn_batch\s*= (\d+)"), "max_num_batched_tokens", as_count),
    _Line(
        "llama.cpp",
        re.compile(r"\bn_ctx_(?:slot|per_seq|seq)\s*= (\d+)"),
        "max_model_len",
        as_count,
    ),
)
_FLAGS: Final[tuple[tuple[str, str, Any], ...]] = (
    ("Custom allreduce is disabled", "disable_custom_all_reduce", True),
    ("Custom all-reduce is disabled", "disable_custom_all_reduce", True),
    ("Using a slow tokenizer", "tokenizer_mode", "slow"),
    ("Cudagraph is disabled under eager mode", "enforce_eager", True),
    ("CUDA graph is disabled", "enforce_eager", True),
    ("Enforce eager set", "enforce_eager", True),
    ("Chunked prefill is enabled", "enable_chunked_prefill", True),
)
_PREEMPTION: Final = re.compile(r"preempted by PreemptionMode\.(SWAP|RECOMPUTE)")


class LogSettings:
    """Collects what lines tell of the settings; the newest start in the log counts."""

    def __init__(self) -> None:
        self._dumps: dict[str, FactsDocument] = {}
        self._settings: dict[str, Any] = {}
        self._engine: dict[str, str] = {}

    def take(self, line: LogLine) -> bool:
        """Read a line; False where it tells no setting."""
        text = line.text
        return self._take_dump(text) or self._take_line(text)

    def document(self) -> FactsDocument:
        """Single lines before dumps: they say what a setting came to. The engine's own dump of its
        configuration goes before that of its arguments."""
        order = ("config", "server_args", "non_default", "args")
        dumps = [self._dumps[name] for name in order if name in self._dumps]
        return overlay(facts_document(engine=self._engine, settings=self._settings), *dumps)

    def _take_dump(self, text: str) -> bool:
        if (match := _VLLM_CONFIG.search(text)) is not None:
            self._engine["name"] = "vllm"
            self._engine["variant"] = match[1].lower() if match[1] else "v0"
            if match[2]:
                self._engine["version"] = match[2]
            self._dumps["config"] = effective_config(read_fields(text[match.end() :]))
        elif (match := _VLLM_VERSION.search(text)) is not None:
            self._engine |= {"name": "vllm", "version": match[1]}
        elif _NON_DEFAULT in text:
            arguments = read_value(text[text.index(_NON_DEFAULT) + len(_NON_DEFAULT) :])
            if not isinstance(arguments, dict):
                return False
            # All that was given is there: what is not was not given.
            given = {"quantization": None, "speculative_config": None} | arguments
            self._dumps["non_default"] = argument_facts("vllm", given)
        elif (match := _ARGS.search(text)) is not None:
            self._dumps["args"] = argument_facts("vllm", read_fields(text[match.end() :]))
        elif (match := _SERVER_ARGS.search(text)) is not None:
            self._engine["name"] = "sglang"
            self._dumps["server_args"] = argument_facts("sglang", read_fields(text[match.end() :]))
        elif (match := _TRTLLM_VERSION.search(text)) is not None:
            self._engine |= {"name": "tensorrt-llm", "version": match[1]}
        elif (match := _LLAMACPP_BUILD.search(text)) is not None:
            self._engine |= {"name": "llama.cpp", "version": match[1]}
        else:
            return False
        return True

    def _take_line(self, text: str) -> bool:
        found = False
        for line in _LINES:
            if self._engine.get("name", line.engine) != line.engine:
                continue
            match = line.pattern.search(text)
            value = line.read(match[1]) if match is not None else None
            if value is not None and (value or value is False):
                self._settings[line.setting] = value
                found = True
        for words, setting, value in _FLAGS:
            if words in text:
                self._settings[setting] = value
                found = True
        if (mode := _PREEMPTION.search(text)) is not None:
            self._settings["preemption_mode"] = mode[1].lower()
            found = True
        if (forced := _KERNEL_FORCED.search(text)) is not None:
            self._settings |= {"quantization": forced[2], "quantization_kernel": forced[2]}
            found = True
        elif (chosen := _KERNEL_CHOSEN.search(text)) is not None:
            self._settings["quantization_kernel"] = chosen[2]
            found = True
        return found


def effective_config(config: Mapping[str, Any]) -> FactsDocument:
    """Facts of vLLM's configuration as it runs.

    There `quantization` is what the model came to, asked for or not: a kernel's name, or None.
    """
    arguments = dict(config)
    if arguments.get("quantization") is not None:
        del arguments["quantization"]
    document = argument_facts("vllm", arguments)
    kernel = as_text(config.get("quantization"))
    if kernel in _KERNELS:
        document.setdefault("settings", {})["quantization_kernel"] = kernel
    return document
