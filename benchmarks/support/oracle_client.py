"""The oracle: NVIDIA's aiconfigurator-core, kernels measured one by one and put together to steps.

Its tables hold what single kernels took on some GPUs, by engine and version; a model's step is the
sum of them, interpolated. It knows no queue, no scheduler and no host. It runs in .venvs/oracle
(`scripts/setup-oracle.sh`), as a process of its own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mileage.costmodel.deployment import Deployment

__all__ = ["ORACLE", "Answer", "Kernel", "Step", "ask", "query", "seconds"]

ORACLE = Path(__file__).parents[2] / ".venvs" / "oracle" / "bin" / "python"
_SCRIPT = Path(__file__).parent / "oracle_query.py"
_TIMEOUT_S = 600

_MODELS = {
    "meta-llama/Llama-3.1-8B": "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "Qwen/Qwen3-8B": "Qwen/Qwen3-8B",
    "Qwen/Qwen3-32B": "Qwen/Qwen3-32B",
    "Qwen/Qwen3-30B-A3B": "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen3-235B-A22B": "Qwen/Qwen3-235B-A22B",
    "MiniMaxAI/MiniMax-M2": "MiniMaxAI/MiniMax-M2.5",
    "openai/gpt-oss-120b": "openai/gpt-oss-120b",
    "deepseek-ai/DeepSeek-V3": "deepseek-ai/DeepSeek-V3",
}
"""Our name, and the oracle's for the same shapes."""
_SYSTEMS = {
    "A100-80GB-SXM4": "a100_sxm",
    "L40S": "l40s",
    "H100-SXM5-80GB": "h100_sxm",
    "H200-SXM-141GB": "h200_sxm",
    "B200-SXM-180GB": "b200_sxm",
    "B300-SXM-288GB": "b300_sxm",
}
_LINEAR = {"bf16": "bfloat16", "fp8": "fp8", "int4": "int4_wo", "fp4": "nvfp4"}
_CACHE = {"bf16": "bfloat16", "fp8": "fp8"}
_OWN_PRECISION = {
    "deepseek-ai/DeepSeek-V3": "fp8",
    "MiniMaxAI/MiniMax-M2": "fp8",
    "openai/gpt-oss-120b": "fp4",
}
"""Models that were trained in a precision: their checkpoint tells it matrix by matrix."""
_BLOCKS = ("Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-235B-A22B")
"""Mixtures whose FP8 checkpoint, a model of its own there, has a scale for each block."""


class Step(NamedTuple):
    """What one step computes: requests that decode, and a prompt that is whole in it."""

    decoding: int
    context_tokens: int
    """Of each request that decodes; beside a prompt at least as long as that."""
    prompt_tokens: int = 0

    @property
    def kind(self) -> str:
        """decode, prefill or mixed."""
        if not self.prompt_tokens:
            return "decode"
        return "mixed" if self.decoding else "prefill"


class Kernel(NamedTuple):
    """One operator of a step, all layers together."""

    name: str
    seconds: float
    source: str
    """silicon: measured; empirical: a formula; mixed: either."""


class Answer(NamedTuple):
    """To one query: the kernels of each step, or None and why."""

    steps: Sequence[Sequence[Kernel] | None]
    reason: str | None


def query(deployment: Deployment, steps: Sequence[Step]) -> dict[str, Any] | None:
    """The question, for `oracle_query`; None where the oracle does not know the model or GPU."""
    ours, weights = deployment.model.name, deployment.weights
    name, system = _MODELS.get(ours), _SYSTEMS.get(deployment.gpu.name)
    own = _OWN_PRECISION.get(ours)
    known = weights == own if own else weights in _LINEAR
    if name is None or system is None or not known or deployment.pipeline_parallel > 1:
        return None
    options: dict[str, Any] = {
        "tp_size": deployment.tensor_parallel,
        "attention_dp_size": deployment.data_parallel,
        "kvcache_quant_mode": _CACHE[deployment.kv],
        "fmha_quant_mode": "bfloat16",
    }
    if weights == "fp8" and ours in _BLOCKS:
        name, own = f"{name}-FP8", weights
    if own is None:
        options["gemm_quant_mode"] = _LINEAR[weights]
    if deployment.model.experts:
        options["moe_ep_size"] = deployment.expert_parallel
        options["moe_tp_size"] = deployment.ranks // deployment.expert_parallel
        if own is None:
            options["moe_quant_mode"] = _LINEAR[weights]
    return {
        "model": name,
        "system": system,
        "backend": deployment.engine,
        "options": options,
        "steps": [step._asdict() for step in steps],
    }


def ask(queries: Sequence[dict[str, Any]]) -> tuple[str, list[Answer]]:
    """The oracle's version and its answers. RuntimeError where it fails as a whole."""
    done = subprocess.run(
        [str(ORACLE), str(_SCRIPT)],
        input=json.dumps(queries),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the oracle failed: {done.stderr.strip().splitlines()[-1:]}")
    document = json.loads(done.stdout.splitlines()[-1])
    return document["version"], [_answer(each) for each in document["answers"]]


def _answer(found: dict[str, Any]) -> Answer:
    steps = [
        None if step is None else tuple(Kernel(*kernel) for kernel in step)
        for step in found["steps"]
    ]
    reasons = (found["error"], *found["errors"])
    return Answer(steps, next((reason for reason in reasons if reason), None))


def seconds(kernels: Sequence[Kernel]) -> float:
    """Of the whole step: the oracle's kernels follow each other."""
    return sum(kernel.seconds for kernel in kernels)
