"""The deployment as the simulator takes it: model, cards, engine settings; and its KV cache."""

from __future__ import annotations

from typing import Final

import msgspec

from mileage.core.errors import ConfigError
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.layout import Engine, Interconnect
from mileage.costmodel.precision import Precision
from mileage.doctor.engine_flags import engine_family
from mileage.doctor.evidence import Evidence
from mileage.doctor.gain.load import Load
from mileage.doctor.gain.speculation import speculation_of
from mileage.doctor.gain.unsimulated import Unsimulated
from mileage.doctor.gain.weight_format import kv_format, weight_format
from mileage.doctor.interval import Interval
from mileage.doctor.machine import Machine
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_defaults import default_limits
from mileage.sim.engine_features import SpeculationConfig

__all__ = ["BLOCK_TOKENS", "Setup", "engine_of", "kv_blocks_of", "setup_of"]

BLOCK_TOKENS: Final = 16

_ENGINES: Final[dict[str, Engine]] = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}
_WHOLE_PROMPTS: Final = 2.0
"""A step that takes prompts whole has room for the longest: so many times a mean request."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Equal replicas; figures are of one of them."""

    deployment: Deployment
    replicas: int
    requests_max: int
    step_tokens_max: int
    chunked_prefill: bool
    prefix_cache: bool
    whole_prompt_fits: bool
    graphs: bool
    speculation: SpeculationConfig | None
    kv_tokens: Interval | None
    """What the engine itself says of its cache; None: it is worked out."""
    kv_tokens_max: int | None
    """A cap on the cache."""
    assumed: tuple[str, ...]
    """What the facts do not tell."""


def setup_of(evidence: Evidence, load: Load) -> Setup | Unsimulated:
    """The deployment as it runs now, as far as facts tell; else what keeps it from simulation."""
    family = engine_family(evidence.text("engine.name"))
    if family is None:
        return Unsimulated("the engine is not one that is simulated")
    engine = _ENGINES.get(family)
    if engine is None or evidence.text("engine.variant") == "embedded":
        return Unsimulated("this engine is not simulated")
    deployment = _deployment(evidence, engine)
    if isinstance(deployment, Unsimulated):
        return deployment
    ranks = _count(evidence, "data_parallel_size") or 1
    if ranks > 1 and deployment.model.experts:
        return Unsimulated("data-parallel attention is not simulated here")
    drafts = speculation_of(evidence, deployment.model, deployment.gpu)
    if isinstance(drafts, Unsimulated):
        return drafts
    assumed = [] if _weights(evidence) is not None else ["weights of 16 bits"]
    if family != "vllm":
        assumed.append("scheduling as vLLM's")
    requests, tokens = _limits(evidence, deployment, load)
    return Setup(
        deployment=deployment,
        replicas=ranks * (_count(evidence, "topology.replicas") or 1),
        requests_max=requests,
        step_tokens_max=tokens,
        chunked_prefill=_flag(evidence, "enable_chunked_prefill", default=engine != "trtllm"),
        prefix_cache=_flag(evidence, "enable_prefix_caching", default=True),
        whole_prompt_fits=evidence.text("scheduler.admission") != "per_chunk",
        graphs=not _flag(evidence, "enforce_eager", default=False),
        speculation=drafts,
        kv_tokens=_kv_tokens(evidence),
        kv_tokens_max=_count(evidence, "max_tokens_in_paged_kv_cache"),
        assumed=tuple(assumed),
    )


def _deployment(evidence: Evidence, engine: Engine) -> Deployment | Unsimulated:
    machine = Machine(evidence)
    model, card = machine.architecture, machine.gpu
    if model is None:
        return Unsimulated("the model is not one that the cost model knows")
    if card is None:
        return Unsimulated("the card is not one that the cost model knows")
    tensor = _count(evidence, "tensor_parallel_size")
    if tensor is None and _count(evidence, "hardware.count") == 1:
        tensor = 1
    if tensor is None:
        return Unsimulated("how many cards a replica has is not known")
    kv = kv_format(evidence.text("kv_cache_dtype"))
    if kv is None:
        return Unsimulated("a KV cache of that dtype is not simulated")
    share = evidence.number("gpu_memory_utilization").value
    link: Interconnect = "pcie"
    try:
        return Deployment(
            model=model,
            gpu=card,
            tensor_parallel=tensor,
            pipeline_parallel=_count(evidence, "pipeline_parallel_size") or 1,
            weights=_weights(evidence) or "bf16",
            kv=kv,
            engine=engine,
            gpu_memory_utilization_ratio=share.middle if share.bounded else 0.9,
            interconnect=link if evidence.contains("hardware.interconnect", "pcie").truth else None,
        )
    except ConfigError as error:
        return Unsimulated(f"the cost model does not split it so: {error}")


def _weights(evidence: Evidence) -> Precision | None:
    said = (evidence.text(key) for key in ("quantization", "model.dtype", "model.name"))
    return weight_format(*said)


def kv_blocks_of(setup: Setup, present: Setup | None = None) -> int | Unsimulated:
    """Blocks of the KV cache of one replica.

    Where the engine tells the size of its present cache, that is it, and the cost model adds what
    a change (`present`: what was before it) brings or takes.
    """
    found = _computed(setup)
    if isinstance(found, Unsimulated):
        return found
    told = setup.kv_tokens
    if told is not None:
        before = found if present is None else _computed(present)
        if isinstance(before, Unsimulated):
            return before
        found += round(told.middle / BLOCK_TOKENS) - before
    if setup.kv_tokens_max is not None:
        found = min(found, setup.kv_tokens_max // BLOCK_TOKENS)
    return found if found >= 1 else Unsimulated("no KV cache would be left")


def engine_of(setup: Setup, blocks: int) -> EngineConfig:
    """One replica's engine. Raises ConfigError for settings that do not go together."""
    stages, drafts = setup.deployment.pipeline_parallel, setup.speculation
    rows = 1 if drafts is None else drafts.draft_tokens + 1
    return EngineConfig(
        kv_blocks=blocks,
        running_max=max(1, min(setup.requests_max, setup.step_tokens_max * stages // rows)),
        step_tokens_max=setup.step_tokens_max * stages,
        block_tokens=BLOCK_TOKENS,
        chunked_prefill=setup.chunked_prefill,
        prefix_cache=setup.prefix_cache,
        whole_prompt_fits=setup.whole_prompt_fits,
        speculation=drafts,
    )


def _computed(setup: Setup) -> int | Unsimulated:
    stages = setup.deployment.pipeline_parallel
    seqs = max(1, setup.requests_max // stages)
    try:
        return setup.deployment.kv_blocks(BLOCK_TOKENS, setup.step_tokens_max, seqs)
    except ConfigError as error:
        return Unsimulated(f"by the cost model it does not fit: {error}")


def _limits(evidence: Evidence, deployment: Deployment, load: Load) -> tuple[int, int]:
    requests, tokens = default_limits(deployment.gpu)
    if not _flag(evidence, "enable_chunked_prefill", default=True):
        longest = _WHOLE_PROMPTS * load.prompt_tokens.plus(load.output_tokens).high
        tokens = max(tokens, round(longest))
    requests = _count(evidence, "max_num_seqs") or requests
    return requests, _count(evidence, "max_num_batched_tokens") or tokens


def _count(evidence: Evidence, key: str) -> int | None:
    """A whole number of 1 or more that is known to one side."""
    value = evidence.number(key).value
    return round(value.middle) if value.bounded and value.middle >= 1 else None


def _flag(evidence: Evidence, key: str, *, default: bool) -> bool:
    if evidence.is_true(key).truth:
        return True
    return False if evidence.is_false(key).truth else default


def _kv_tokens(evidence: Evidence) -> Interval | None:
    value = evidence.number("kv_cache_capacity_tokens")
    least = value.least
    return least if value.known and least.bounded and least.low >= BLOCK_TOKENS else None
