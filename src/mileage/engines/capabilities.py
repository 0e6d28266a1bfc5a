"""What each kind of engine can change while it runs, by which endpoint, and what only at its start.

The governor goes by it: an engine whose own limit it can set, with an end to it should the gateway
die, gets that (`[engines.control]`); all others are governed by the gateway's limit alone. The
sources were read in September to November 2026, in the projects' main branches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from mileage.engines.config import EngineKind

__all__ = ["CAPABILITIES", "Capabilities", "CapabilityKind", "Knob", "controllable"]

CapabilityKind: TypeAlias = EngineKind | Literal["ollama", "embedded"]
"""Kinds of engines; `ollama` is configured as `openai`, `embedded` is our own."""


class Knob(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be set. `live`: the request that changes it while the engine runs; None:
    only `start`, the option that it is started with."""

    what: str
    live: str | None = None
    start: str | None = None
    note: str = ""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Of one kind of engine. `governed_by`: what the governor limits it by, and `why`."""

    title: str
    governed_by: Literal["engine", "gateway"]
    why: str
    knobs: tuple[Knob, ...]
    sources: tuple[str, ...]


def controllable() -> tuple[CapabilityKind, ...]:
    """Kinds whose own limit the governor can set."""
    return tuple(kind for kind, each in CAPABILITIES.items() if each.governed_by == "engine")


_VLLM: Final = Capabilities(
    title="vLLM with Mileage's plugin",
    governed_by="engine",
    why="with `[engines.control]`: its limit has a lease, and tells what is in force; the "
    "gateway's own limit stays before it",
    knobs=(
        Knob(
            what="requests at once",
            live="`POST /mileage/control`, `active_max`",
            start="`--max-num-seqs`",
            note="up to what it was started with; leased",
        ),
        Knob(
            what="tokens of a step",
            live="`POST /mileage/control`, `step_tokens_max`, or the policy `budget`",
            start="`--max-num-batched-tokens`",
            note="up to what it was started with; leased",
        ),
        Knob(
            what="chunk of a long prompt",
            live="`POST /mileage/control`, `long_prefill_tokens_max`",
            start="`--long-prefill-token-threshold`",
            note="leased",
        ),
        Knob(
            what="requests that wait",
            live="`POST /mileage/control`, `waiting_max`",
            note="leased",
        ),
        Knob(
            what="LoRA adapters",
            live="`POST /v1/load_lora_adapter`, `/v1/unload_lora_adapter`",
            start="`--enable-lora`, `--max-loras`",
            note="with `VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`",
        ),
        Knob(
            what="sleep",
            live="`POST /sleep`, `/wake_up`",
            start="`--enable-sleep-mode`",
            note="with `VLLM_SERVER_DEV_MODE=1`",
        ),
        Knob(what="KV memory and its type", start="`--gpu-memory-utilization`, `--kv-cache-dtype`"),
        Knob(what="graphs, parallelism", start="`--compilation-config`, `--tensor-parallel-size`"),
    ),
    sources=(
        "[Control of vLLM](vllm-control.md)",
        "`vllm-project/vllm`: vllm/v1/core/sched/scheduler.py, docs/features/lora.md, "
        "docs/features/sleep_mode.md",
    ),
)

_SGLANG: Final = Capabilities(
    title="SGLang",
    governed_by="gateway",
    why="its limit can be changed, and would stay so when the gateway has died: it has no lease",
    knobs=(
        Knob(
            what="requests at once",
            live="`POST /set_internal_state`, `server_args.pp_max_micro_batch_size`",
            start="`--max-running-requests`",
            note="1 to max_running_requests / pp_size, for each scheduler; in older releases "
            "its name is `max_micro_batch_size`",
        ),
        Knob(
            what="caution when requests are admitted",
            live="`POST /set_internal_state`, `server_args.schedule_conservativeness`",
            start="`--schedule-conservativeness`",
            note="live in recent releases only",
        ),
        Knob(what="tokens of a step", start="`--chunked-prefill-size`, `--max-prefill-tokens`"),
        Knob(what="requests that wait", start="`--max-queued-requests`"),
        Knob(
            what="LoRA adapters",
            live="`POST /load_lora_adapter`, `/unload_lora_adapter`",
            start="`--enable-lora`, `--max-loras-per-batch`",
        ),
        Knob(
            what="sleep",
            live="`POST /release_memory_occupation`, `/resume_memory_occupation`",
            start="`--enable-memory-saver`",
        ),
        Knob(what="KV memory and its type", start="`--mem-fraction-static`, `--kv-cache-dtype`"),
    ),
    sources=(
        "`sgl-project/sglang`: python/sglang/srt/entrypoints/http_server.py, "
        "python/sglang/srt/managers/scheduler.py (`set_internal_state`, "
        "`get_num_allocatable_reqs`), docs/advanced_features/server_arguments.md",
    ),
)

_TRTLLM: Final = Capabilities(
    title="TensorRT-LLM (trtllm-serve)",
    governed_by="gateway",
    why="none of its limits can be changed while it runs",
    knobs=(
        Knob(what="requests at once", start="`--max_batch_size`"),
        Knob(what="tokens of a step", start="`--max_num_tokens`, `enable_chunked_prefill`"),
        Knob(
            what="sleep",
            live="`POST /release_memory`, `/resume_memory`",
            note="meant for reinforcement learning; recent releases",
        ),
        Knob(
            what="KV memory and its type",
            start="`kv_cache_config`: `free_gpu_memory_fraction`, `dtype`",
        ),
        Knob(what="order and preemption", start="`scheduler_config.capacity_scheduler_policy`"),
    ),
    sources=(
        "`NVIDIA/TensorRT-LLM`: tensorrt_llm/serve/openai_server.py, "
        "docs/source/commands/trtllm-serve",
    ),
)

_TRITON: Final = Capabilities(
    title="Triton",
    governed_by="gateway",
    why="changing a limit loads the model anew, and there is no lease",
    knobs=(
        Knob(
            what="copies of a model (`instance_group`)",
            live="`POST /v2/repository/models/NAME/load`, parameter `config`",
            start="`config.pbtxt`",
            note="with `--model-control-mode=explicit`; where nothing else differs the model is "
            "updated, else loaded anew beside the old one",
        ),
        Knob(
            what="`dynamic_batching`, its queue and `max_batch_size`",
            live="the same: the model is loaded anew",
            start="`config.pbtxt`",
            note="the parameter replaces the whole configuration",
        ),
        Knob(
            what="models",
            live="`POST /v2/repository/models/NAME/load`, `/unload`",
            start="`--load-model`",
            note="with `--model-control-mode=explicit`",
        ),
    ),
    sources=(
        "`triton-inference-server/server`: docs/protocol/extension_model_repository.md, "
        "docs/user_guide/model_management.md",
    ),
)

_LLAMACPP: Final = Capabilities(
    title="llama.cpp (llama-server)",
    governed_by="gateway",
    why="its slots are made at its start; `POST /props` has no options yet",
    knobs=(
        Knob(what="requests at once", start="`--parallel`"),
        Knob(what="tokens of a step", start="`--batch-size`, `--ubatch-size`"),
        Knob(
            what="LoRA adapters' scales",
            live="`POST /lora-adapters`, or `lora` in a request",
            start="`--lora`",
            note="adapters themselves are loaded at the start",
        ),
        Knob(
            what="prompt cache of a slot",
            live="`POST /slots/ID?action=save`, `restore`, `erase`",
            start="`--slot-save-path`",
        ),
        Knob(
            what="KV memory and its type",
            start="`--ctx-size`, `--cache-type-k`, `--cache-type-v`",
        ),
    ),
    sources=("`ggml-org/llama.cpp`: tools/server/README.md",),
)

_OLLAMA: Final = Capabilities(
    title="Ollama and the like (kind `openai`)",
    governed_by="gateway",
    why="its limits are variables of its environment",
    knobs=(
        Knob(what="requests at once", start="`OLLAMA_NUM_PARALLEL`"),
        Knob(what="requests that wait", start="`OLLAMA_MAX_QUEUE`"),
        Knob(what="models at once", start="`OLLAMA_MAX_LOADED_MODELS`"),
        Knob(
            what="how long a model stays loaded",
            live="`keep_alive` in a request to `/api/generate` or `/api/chat`",
            start="`OLLAMA_KEEP_ALIVE`",
            note="0 unloads it, a negative number keeps it",
        ),
    ),
    sources=("`ollama/ollama`: docs/faq.mdx",),
)

_OPENAI: Final = Capabilities(
    title="Any other OpenAI-compatible server",
    governed_by="gateway",
    why="nothing is known of what it can change",
    knobs=(),
    sources=("none",),
)

_EMBEDDED: Final = Capabilities(
    title="The embedded engine",
    governed_by="gateway",
    why="its slots are made at its start, and nobody but the gateway sends it anything",
    knobs=(
        Knob(what="requests at once", start="`embedded.slots`"),
        Knob(
            what="LoRA adapters",
            live="when a request names one",
            start="`embedded.lora_slots`",
            note="by a second process, which takes over ([how](../how-to/serve-adapters.md))",
        ),
        Knob(
            what="models",
            live="when a request names one",
            start="`[[models]]`",
            note="unloaded when idle ([how](../how-to/idle-models.md))",
        ),
        Knob(
            what="KV memory and its type",
            start="`embedded.context_tokens`, `cache_type_k`, `cache_type_v`",
        ),
    ),
    sources=("[the embedded engine](../how-to/embedded-engine.md)",),
)

CAPABILITIES: Final[Mapping[CapabilityKind, Capabilities]] = {
    "vllm": _VLLM,
    "sglang": _SGLANG,
    "trtllm": _TRTLLM,
    "triton": _TRITON,
    "llamacpp": _LLAMACPP,
    "openai": _OPENAI,
    "ollama": _OLLAMA,
    "embedded": _EMBEDDED,
}
