"""Lines that engines write while they start, and which phase each tells of: the one table of them.

`seen` is the release in whose source or log the wording was found; "reports": logs of other
releases that users published have it. A line that an engine does not write leaves its phase
unknown.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["MARKS", "READY", "SPANS", "STARTS", "TOOK", "PhaseSpan", "StartMark", "TookLine"]

_SECONDS: Final = r"([\d.]+) ?(?:s\b|secs?\b|seconds\b)"


class TookLine(NamedTuple):
    """A line that says itself how long its phase took, in the pattern's one group."""

    engine: str
    seen: str
    signal: str
    pattern: re.Pattern[str]


class PhaseSpan(NamedTuple):
    """A phase that lasts from one line of a worker to another one of it."""

    engine: str
    seen: str
    signal: str
    begins: str
    ends: str


class StartMark(NamedTuple):
    """A line that says how far the start has come: `imported` (its program is loaded and has read
    its arguments), `engine` (the engine's own process begins), `loading`, `serving`."""

    engine: str
    seen: str
    mark: str
    words: str


def _took(engine: str, seen: str, signal: str, pattern: str) -> TookLine:
    return TookLine(engine, seen, signal, re.compile(pattern.replace("SECONDS", _SECONDS)))


TOOK: Final = (
    _took("vllm", "0.32", "startup_weights_s", r"Loading (?:model )?weights took SECONDS"),
    _took(
        "vllm",
        "0.32",
        "startup_weights_s",
        r"Model loading took [\d.]+ ?Gi?B(?: memory)? and SECONDS",
    ),
    _took("sglang", "reports", "startup_weights_s", r"Load weight end\. elapsed=SECONDS"),
    _took("vllm", "0.32", "startup_dynamo_s", r"Dynamo bytecode transform time: SECONDS"),
    _took("vllm", "reports", "torch_compile_s", r"torch\.compile takes SECONDS in total"),
    _took("vllm", "0.32", "torch_compile_s", r"torch\.compile took SECONDS in total"),
    _took("vllm", "0.32", "startup_kv_profile_s", r"Memory profiling (?:takes|took) SECONDS"),
    _took("vllm", "0.32", "startup_graph_capture_s", r"Graph capturing finished in SECONDS"),
    _took(
        "sglang",
        "reports",
        "startup_graph_capture_s",
        r"Capture .*?graph end\. Time elapsed: SECONDS",
    ),
    _took("vllm", "0.32", "startup_engine_init_s", r"init engine \(.*?\) took SECONDS"),
    _took("vllm", "0.32", "torch_compile_s", r"init engine .*?\(compilation: SECONDS"),
)
"""`torch_compile_s` is tracing and compiling together."""

SPANS: Final = (
    PhaseSpan(
        "vllm",
        "0.32",
        "startup_p2p_check_s",
        "generating GPU P2P access cache",
        "reading GPU P2P access cache",
    ),
    PhaseSpan("sglang", "reports", "startup_weights_s", "Load weight begin", "Load weight end"),
    PhaseSpan(  # its CPU build; in two lines, and nothing else is compiled
        "vllm",
        "0.32",
        "torch_compile_s",
        "Warming up model for the compilation...",
        "Warming up done.",
    ),
    PhaseSpan(
        "llama.cpp",
        "2026-10",
        "startup_weights_s",
        "load_model: loading model",
        "load_model: initializing, n_slots",
    ),
    PhaseSpan(
        "llama.cpp",
        "reports",
        "startup_weights_s",
        "llama_model_loader: loaded meta data",
        "llama_context: constructing llama_context",
    ),
)

STARTS: Final = (
    "vLLM API server version",
    "non-default args: ",
    "server_args=ServerArgs(",
    "TensorRT-LLM version:",
)
"""The first line of a start that says with which arguments."""

MARKS: Final = (
    StartMark("vllm", "reports", "imported", "vLLM API server version"),
    StartMark("vllm", "0.32", "imported", "non-default args: "),
    StartMark("sglang", "reports", "imported", "server_args=ServerArgs("),
    StartMark("tensorrt-llm", "reports", "imported", "TensorRT-LLM version:"),
    StartMark("llama.cpp", "2026-10", "imported", "init: build_info: "),
    StartMark("llama.cpp", "reports", "imported", "system_info: n_threads"),
    StartMark("vllm", "0.32", "engine", "Initializing a V1 LLM engine"),
    StartMark("vllm", "0.32", "loading", "Starting to load model"),
    StartMark("sglang", "reports", "loading", "Load weight begin"),
    StartMark("llama.cpp", "2026-10", "loading", "load_model: loading model"),
    StartMark("llama.cpp", "reports", "loading", "llama_model_loader: loaded meta data"),
    StartMark("vllm", "0.32", "serving", "Application startup complete"),
    StartMark("vllm", "0.32", "serving", "Uvicorn running on"),
    StartMark("sglang", "reports", "serving", "The server is fired up and ready to roll"),
    StartMark("llama.cpp", "2026-10", "serving", "init: listening on http"),
    StartMark("llama.cpp", "reports", "serving", "server is listening on"),
    StartMark("triton", "reports", "serving", "Started GRPCInferenceService"),
)
READY: Final = tuple(mark.words for mark in MARKS if mark.mark == "serving")
