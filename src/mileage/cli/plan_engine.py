"""What a set-up of a plan is started with: one engine's command, and what it does not say."""

from __future__ import annotations

import shlex
from typing import Final

import msgspec

from mileage.core.errors import ConfigError
from mileage.costmodel.precision import Precision
from mileage.engines.configuration.generate import PlannedEngine, configure
from mileage.engines.configuration.plan import EnginePlan, WeightsName
from mileage.engines.configuration.plan_parts import LoraPlan
from mileage.planner.candidate import Candidate

__all__ = ["EngineStart", "engine_start"]

_WEIGHTS: Final[dict[Precision, WeightsName]] = {
    "fp8": "fp8",
    "int8": "int8",
    "int4": "awq",
    "fp4": "fp4",
}


class EngineStart(msgspec.Struct, frozen=True, kw_only=True):
    """Of one engine of the fleet."""

    command: str
    """Of one replica; empty where the engine has none for it."""
    besides: tuple[str, ...]
    """What has to be done that the command does not."""


def engine_start(
    engine: str, model: str, candidate: Candidate, gpu_memory_ratio: float
) -> EngineStart:
    """The command of `engine` (vllm, sglang or trtllm) that serves the model so."""
    name: PlannedEngine = {"sglang": "sglang", "trtllm": "trtllm"}.get(engine, "vllm")  # type: ignore[assignment]
    besides = _besides(engine, candidate)
    try:
        found = configure(name, _plan(model, candidate, gpu_memory_ratio))
    except ConfigError as error:
        return EngineStart(command="", besides=(f"{error.key}: {error.expected}", *besides))
    words = [f"{key}={shlex.quote(value)}" for key, value in found.environment.items()]
    command = " ".join([*words, shlex.join(found.commands[0])]) if found.commands else ""
    warnings = tuple(f"{each.field}: {each.message}" for each in found.warnings)
    return EngineStart(command=command, besides=(*warnings, *besides))


def _plan(model: str, candidate: Candidate, gpu_memory_ratio: float) -> EnginePlan:
    sharing = candidate.sharing
    together = sharing.replicas if sharing is not None and sharing.mode != "mig" else 1
    sizes = candidate.graph_sizes
    adapters = candidate.adapters
    return EnginePlan(
        model=model,
        tensor_parallel=candidate.tensor_parallel,
        pipeline_parallel=candidate.pipeline_parallel,
        instances=together,
        weights=_WEIGHTS.get(candidate.weights),
        kv_dtype="fp8" if candidate.kv == "fp8" else None,
        running_max=candidate.running_max,
        step_tokens_max=candidate.step_tokens_max,
        gpu_memory_ratio=gpu_memory_ratio,
        prefix_caching=candidate.prefix_cache,
        chunked_prefill=candidate.chunked_prefill,
        graph_sizes=None if sizes == "default" else () if sizes == "none" else sizes,
        lora=None if adapters is None else LoraPlan(slots=adapters.slots),
    )


def _besides(engine: str, candidate: Candidate) -> tuple[str, ...]:
    found = []
    if candidate.replicas > 1:
        found.append(f"{candidate.replicas} replicas of it, behind `mileage serve`")
    if candidate.data_parallel > 1:
        option = "--data-parallel-size" if engine == "vllm" else "--dp-size"
        found.append(f"{option} {candidate.data_parallel}")
    if candidate.expert_parallel > 1:
        found.append(
            "--enable-expert-parallel"
            if engine == "vllm"
            else f"--ep-size {candidate.expert_parallel}"
        )
    if candidate.weights == "int4":
        found.append("a checkpoint in 4 bits (AWQ; for GPTQ --quantization gptq)")
    if candidate.speculation is not None:
        tokens = candidate.speculation.draft_tokens
        found.append(f"speculative decoding with {tokens} tokens: a draft model, or MTP")
    if candidate.disaggregation is not None:
        apart = candidate.disaggregation
        found.append(
            f"{apart.prefill_engines} engines for prompts and {apart.decode_engines} that decode, "
            "joined by a KV connector"
        )
    found += [f"{tier.gb_per_gpu:g} GB of KV cache behind each GPU" for tier in candidate.kv_tiers]
    if candidate.sharing is not None and candidate.sharing.mode != "time":
        found.append(f"the GPU shared by {candidate.sharing.mode.upper()}")
    if candidate.policy != "off":
        found.append(f"`mileage serve` with the policy {candidate.policy}")
    return tuple(found)
