"""configure(): what one engine is started with, out of a plan."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final, Literal, get_args

import msgspec

from mileage.core.errors import ConfigError
from mileage.costmodel.architecture import Architecture
from mileage.costmodel.gpu import Gpu
from mileage.costmodel.precision import Precision
from mileage.engines.configuration.cache_size import CacheSize, cache_size
from mileage.engines.configuration.configuration import Configuration, PlanWarning
from mileage.engines.configuration.llama_server import llama_server_configuration
from mileage.engines.configuration.onnx_genai import onnx_configuration
from mileage.engines.configuration.plan import EnginePlan
from mileage.engines.configuration.sglang import sglang_configuration
from mileage.engines.configuration.triton import triton_configuration
from mileage.engines.configuration.trtllm import trtllm_configuration
from mileage.engines.configuration.vllm import vllm_configuration

__all__ = ["ENGINES", "PlannedEngine", "ServedModel", "configure"]

PlannedEngine = Literal["vllm", "sglang", "trtllm", "triton", "llamacpp", "onnx"]
ENGINES: Final[tuple[PlannedEngine, ...]] = get_args(PlannedEngine)
_SMALL_KV: Final = ("int4", "fp4")


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The plan's model, as far as it is known, and the card that it is to run on."""

    architecture: Architecture | None = None
    stored: Precision = "bf16"
    """How its weights are."""
    gpu: Gpu | None = None


def configure(
    engine: PlannedEngine,
    plan: EnginePlan,
    model: ServedModel | None = None,
    directory: PurePath | None = None,
) -> Configuration:
    """Commands and files that start the engine so, with a warning for all that it has no words for.

    With a GPU and the model's shape the KV cache is computed, and that all fits is checked.
    `directory`: where the files will be, as the commands name it; None: where they run. Raises
    ConfigError, with the plan's field, for what the engine has not.
    """
    model = model or ServedModel()
    if engine == "onnx":
        if model.architecture is None:
            expected = "a name of the catalogue or a config.json: ONNX Runtime asks for the shape"
            raise ConfigError("architecture", plan.architecture, expected)
        return onnx_configuration(plan, model.architecture)
    cache = None
    if model.architecture is not None and model.gpu is not None:
        cache = cache_size(plan, model.architecture, model.gpu, model.stored)
    match engine:
        case "vllm":
            found = vllm_configuration(plan)
        case "sglang":
            found = sglang_configuration(plan, cache)
        case "trtllm":
            found = trtllm_configuration(plan, cache, directory)
        case "triton":
            found = triton_configuration(plan, cache, directory)
        case "llamacpp":
            found = llama_server_configuration(plan)
    if cache is None:
        return found
    warnings = (*found.warnings, *_room(plan, cache))
    return msgspec.structs.replace(found, kv_cache=cache, warnings=warnings)


def _room(plan: EnginePlan, cache: CacheSize) -> list[PlanWarning]:
    found = []
    if plan.kv_dtype in _SMALL_KV:
        message = "the KV cache was computed as of 8 bits: there is room for more than is said"
        found.append(PlanWarning("kv_dtype", message))
    contexts, running = cache.contexts, plan.running_max
    if contexts is not None and running is not None and contexts < running:
        message = (
            f"the KV cache has room for {contexts} of them where each is {plan.context_max_tokens} "
            "tokens long: with such requests others wait, or are preempted"
        )
        found.append(PlanWarning("running_max", message))
    return found
