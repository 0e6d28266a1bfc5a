"""EnginePlan: how an engine is to be started, in no engine's own words."""

from __future__ import annotations

from itertools import pairwise
from typing import Final, Literal

import msgspec

from mileage.core.bounds import require_at_least, require_range, require_up_to
from mileage.core.errors import ConfigError
from mileage.engines.configuration.plan_parts import (
    LoraPlan,
    OnnxPlan,
    SpeculationPlan,
    TritonPlan,
    TrtllmPlan,
    require_text,
)

__all__ = ["DTypeName", "EnginePlan", "KvDType", "WeightsName"]

DTypeName = Literal["bf16", "fp16", "fp32"]
KvDType = Literal["bf16", "fp16", "fp8", "fp8_e5m2", "int8", "int4", "fp4"]
WeightsName = Literal["fp8", "int8", "awq", "gptq", "fp4"]

_TOKENS_MAX: Final = 1 << 24
_PARALLEL_MAX: Final = 1024
_RUNNING_MAX: Final = 65_536
_BLOCK_MAX: Final = 1024
_DELAY_MAX_MS: Final = 60_000.0
_PORT_MAX: Final = 65_535
_INSTANCES_MAX: Final = 64


class EnginePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an engine is to be started. What is left out is left to the engine.

    Raises ConfigError for what is out of range or contradicts itself, with the field's name.
    """

    model: str
    """A path, or a name of Hugging Face's hub, as the engine takes it."""
    served_name: str | None = None
    """The model's name in requests. None: the engine's own choice."""
    host: str = "127.0.0.1"
    """Address that the engine listens on. This machine only, unless told otherwise: engines ask
    nobody for a key."""
    port: int = 8000
    """Of the first instance; those after it have the ports that follow."""
    tensor_parallel: int = 1
    """GPUs that each layer is cut among."""
    pipeline_parallel: int = 1
    """Stages of layers, each on GPUs of its own."""
    instances: int = 1
    """Copies of the model on the same GPUs, each with its part of their memory."""
    dtype: DTypeName | None = None
    """Numbers that the model computes in. None: those of its checkpoint."""
    weights: WeightsName | None = None
    """How its weights are quantised. None: as its checkpoint says."""
    kv_dtype: KvDType | None = None
    """Numbers of the KV cache. fp8: E4M3; fp4: NVFP4. None: those of `dtype`."""
    context_max_tokens: int | None = None
    """Tokens of one request, its prompt and its answer. None: as many as the model was made for."""
    running_max: int | None = None
    """Requests that run at once, in each instance."""
    step_tokens_max: int | None = None
    """Tokens of one step, of prompts and answers together."""
    gpu_memory_ratio: float | None = None
    """Share of each GPU's memory that all instances together may use: weights, KV cache, all."""
    block_tokens: int | None = None
    """Tokens of a block (page) of the KV cache."""
    prefix_caching: bool | None = None
    """Keep the KV cache of prompts, for those that begin alike."""
    chunked_prefill: bool | None = None
    """Compute long prompts in parts, between the steps of others."""
    graph_sizes: tuple[int, ...] | None = None
    """Batch sizes to capture CUDA graphs for, ascending. Empty: none at all."""
    queue_delay_ms: float | None = None
    """How long a request may wait for others that make a fuller batch of it."""
    preferred_batch_sizes: tuple[int, ...] = ()
    """Batches of so many requests do not wait for more, ascending."""
    gpu: str | None = None
    """Name of the GPU in the catalogue: the KV cache is then computed, and whether all fits."""
    architecture: str | None = None
    """Where the shape of the model is known from: its name in the catalogue, its config.json, or a
    GGUF file. None: `model`. Only asked for with `gpu`, and by ONNX Runtime GenAI."""
    lora: LoraPlan | None = None
    """LoRA adapters."""
    speculation: SpeculationPlan | None = None
    """Speculative decoding."""
    trtllm: TrtllmPlan = TrtllmPlan()
    """What only TensorRT-LLM asks for."""
    triton: TritonPlan = TritonPlan()
    """What only Triton asks for."""
    onnx: OnnxPlan = OnnxPlan()
    """What only ONNX Runtime GenAI asks for."""

    def __post_init__(self) -> None:
        require_text("model", self.model)
        require_text("host", self.host)
        if self.served_name is not None:
            require_text("served_name", self.served_name)
        require_range("port", self.port, 1, _PORT_MAX)
        require_range("instances", self.instances, 1, _INSTANCES_MAX)
        require_range("tensor_parallel", self.tensor_parallel, 1, _PARALLEL_MAX)
        require_range("pipeline_parallel", self.pipeline_parallel, 1, _PARALLEL_MAX)
        if self.port + self.instances - 1 > _PORT_MAX:
            expected = f"up to {_PORT_MAX - self.instances + 1}, for {self.instances} instances"
            raise ConfigError("port", self.port, expected)
        for key, value, high in (
            ("context_max_tokens", self.context_max_tokens, _TOKENS_MAX),
            ("running_max", self.running_max, _RUNNING_MAX),
            ("step_tokens_max", self.step_tokens_max, _TOKENS_MAX),
            ("block_tokens", self.block_tokens, _BLOCK_MAX),
        ):
            if value is not None:
                require_range(key, value, 1, high)
        if self.gpu_memory_ratio is not None:
            require_up_to("gpu_memory_ratio", self.gpu_memory_ratio, 1.0)
        if self.queue_delay_ms is not None:
            require_range("queue_delay_ms", self.queue_delay_ms, 0.0, _DELAY_MAX_MS)
        _require_ascending("graph_sizes", self.graph_sizes or ())
        _require_ascending("preferred_batch_sizes", self.preferred_batch_sizes)
        self._refuse_contradictions()

    def _refuse_contradictions(self) -> None:
        step, running = self.step_tokens_max, self.running_max
        if step is not None and running is not None:
            note = ": each that runs has a token in a step"
            require_at_least("step_tokens_max", step, running, note=f" (running_max){note}")
        context = self.context_max_tokens
        if self.chunked_prefill is False and step is not None and context is not None:
            note = " (context_max_tokens): without chunked_prefill a prompt is one step"
            require_at_least("step_tokens_max", step, context, note=note)
        for key, sizes, name, limit in (
            ("graph_sizes", self.graph_sizes or (), "step_tokens_max", step),
            ("preferred_batch_sizes", self.preferred_batch_sizes, "running_max", running),
        ):
            if sizes and limit is not None and sizes[-1] > limit:
                raise ConfigError(key, sizes[-1], f"up to {limit} ({name})")

    @property
    def name(self) -> str:
        """What clients call the model, for engines that have no choice of their own."""
        return self.served_name or self.model.rstrip("/").rpartition("/")[2]

    @property
    def instance_memory_ratio(self) -> float | None:
        """Of each GPU's memory, what one instance may use; rounded down to a thousandth."""
        if self.gpu_memory_ratio is None:
            return None
        return max(0.001, int(self.gpu_memory_ratio / self.instances * 1000 + 1e-9) / 1000)


def _require_ascending(key: str, sizes: tuple[int, ...]) -> None:
    for size in sizes:
        require_range(key, size, 1, _RUNNING_MAX)
    if any(after <= before for before, after in pairwise(sizes)):
        raise ConfigError(key, list(sizes), "numbers that ascend, each once")
