"""Set-ups that the cost model and the oracle both know, and the steps that they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from benchmarks.support.oracle_client import Step
from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.layout import Engine
from mileage.costmodel.precision import KvPrecision, Precision

__all__ = ["REQUESTS_MAX", "SETUPS", "STEP_TOKENS_MAX", "Setup", "steps"]

REQUESTS_MAX = 256
STEP_TOKENS_MAX = 8192
_BATCHES = (1, 4, 16, 64, 256)
_CONTEXTS = (256, 1024, 4096, 16384)
_PROMPTS = (128, 512, 2048, 8192)
_MIXED = ((512, 16), (512, 128), (2048, 16), (2048, 128))
"""Tokens of a prompt, and requests with contexts of that length that decode beside it."""
_BLOCK_TOKENS = 16


class Setup(NamedTuple):
    """One model on the GPUs of one replica, under one engine."""

    model: str
    gpu: str
    tensor_parallel: int = 1
    weights: Precision = "bf16"
    kv: KvPrecision = "bf16"
    engine: Engine = "vllm"
    expert_parallel: int = 1

    def __str__(self) -> str:
        gpus = f"{self.tensor_parallel}x {self.gpu}"
        spread = f" ep{self.expert_parallel}" if self.expert_parallel > 1 else ""
        return f"{self.model} {self.weights}, {gpus}{spread}, {self.engine}"

    def deployment(self) -> Deployment:
        """The same for the cost model."""
        return Deployment(
            model=architecture(self.model),
            gpu=gpu(self.gpu),
            tensor_parallel=self.tensor_parallel,
            expert_parallel=self.expert_parallel,
            weights=self.weights,
            kv=self.kv,
            engine=self.engine,
        )


SETUPS: Final = (
    Setup("llama-3.1-8b", "a100-80gb"),
    Setup("llama-3.1-8b", "l40s"),
    Setup("llama-3.1-8b", "l40s", weights="fp8"),
    Setup("llama-3.1-8b", "h100"),
    Setup("llama-3.1-8b", "h100", weights="fp8"),
    Setup("llama-3.1-8b", "h100", engine="sglang"),
    Setup("llama-3.1-8b", "h100", engine="trtllm"),
    Setup("llama-3.1-8b", "h200"),
    Setup("llama-3.1-8b", "b200"),
    Setup("qwen3-8b", "a100-80gb"),
    Setup("qwen3-32b", "a100-80gb", 2),
    Setup("qwen3-32b", "l40s", 4),
    Setup("qwen3-32b", "h100", 2),
    Setup("qwen3-32b", "h100", weights="fp8"),
    Setup("qwen3-32b", "h200"),
    Setup("qwen3-32b", "b200", weights="fp8"),
    Setup("llama-3.1-70b", "a100-80gb", 4),
    Setup("llama-3.1-70b", "h100", 4),
    Setup("llama-3.1-70b", "h100", 4, weights="fp8"),
    Setup("llama-3.1-70b", "h100", 8, weights="fp8"),
    Setup("llama-3.1-70b", "h100", 4, weights="fp8", kv="fp8", engine="trtllm"),
    Setup("llama-3.1-70b", "h200", 2, weights="fp8"),
    Setup("llama-3.1-70b", "b200", weights="fp8"),
    Setup("llama-3.1-70b", "b200", weights="fp4"),
    Setup("qwen3-30b-a3b", "a100-80gb"),
    Setup("qwen3-30b-a3b", "l40s", 2),
    Setup("qwen3-30b-a3b", "h100"),
    Setup("qwen3-30b-a3b", "h100", weights="fp8"),
    Setup("qwen3-30b-a3b", "h100", engine="sglang"),
    Setup("qwen3-30b-a3b", "h100", weights="fp8", engine="sglang"),
    Setup("qwen3-235b-a22b", "h100", 8),
    Setup("qwen3-235b-a22b", "h200", 4, weights="fp8"),
    Setup("qwen3-235b-a22b", "h200", 4, weights="fp8", engine="sglang"),
    Setup("qwen3-235b-a22b", "b200", 4, weights="fp8"),
    Setup("gpt-oss-120b", "h100", 2, weights="fp4"),
    Setup("gpt-oss-120b", "h200", weights="fp4"),
    Setup("gpt-oss-120b", "b200", weights="fp4"),
    Setup("deepseek-v3", "h200", 8, weights="fp8"),
    Setup("deepseek-v3", "h200", 8, weights="fp8", expert_parallel=8),
    Setup("deepseek-v3", "h200", 8, weights="fp8", engine="sglang"),
    Setup("deepseek-v3", "b200", 8, weights="fp8"),
    Setup("deepseek-v3", "b200", 8, weights="fp8", engine="sglang"),
)


def steps(deployment: Deployment) -> Iterator[Step]:
    """Those that fit in the memory. ConfigError where not even the model does."""
    blocks = deployment.kv_blocks(_BLOCK_TOKENS, STEP_TOKENS_MAX, REQUESTS_MAX)
    room = blocks * _BLOCK_TOKENS
    for batch in _BATCHES:
        for context in _CONTEXTS:
            if batch * context <= room:
                yield Step(batch, context)
    for prompt in _PROMPTS:
        if prompt <= room:
            yield Step(0, 0, prompt)
    for prompt, batch in _MIXED:
        if (batch + 1) * prompt <= room:
            yield Step(batch, prompt, prompt)
