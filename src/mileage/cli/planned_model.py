"""The model that a plan names, as far as catalogue and files tell: its shape and its tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from mileage.cli.model_source import model_source
from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import gpu
from mileage.engines.configuration.generate import PlannedEngine, ServedModel
from mileage.engines.configuration.plan import EnginePlan

__all__ = ["planned_model", "with_tokens"]

_SHAPED: Final = "onnx"


def planned_model(engine: PlannedEngine, plan: EnginePlan) -> ServedModel:
    """Shape, weights and card: nothing where neither a GPU nor the engine asks for them.

    Raises ConfigError, with the plan's field, for names that are not known.
    """
    if plan.gpu is None and engine != _SHAPED:
        return ServedModel()
    key = "model" if plan.architecture is None else "architecture"
    try:
        source = model_source(plan.architecture or plan.model)
    except ConfigError as error:
        if error.key != "model":
            raise
        hint = "" if plan.architecture else ": name its architecture"
        raise ConfigError(key, error.value, f"{error.expected}{hint}") from None
    return ServedModel(
        architecture=source.architecture,
        stored=source.weights,
        gpu=None if plan.gpu is None else gpu(plan.gpu),
    )


def with_tokens(plan: EnginePlan) -> EnginePlan:
    """The plan with family and special tokens of the model's config.json, where it does not say.

    Raises ConfigError for a file that cannot be read, and tokens that are none.
    """
    path = Path(plan.architecture or plan.model)
    path = path / "config.json" if path.is_dir() else path
    if path.suffix != ".json":
        return plan
    try:
        config = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError("architecture", str(path), f"a config.json: {error}") from None
    onnx = plan.onnx
    eos = config.get("eos_token_id")
    found: dict[str, Any] = {
        "type": onnx.type or config.get("model_type"),
        "bos_token_id": config.get("bos_token_id") if onnx.bos_token_id is None else None,
        "pad_token_id": config.get("pad_token_id") if onnx.pad_token_id is None else None,
        "eos_token_ids": None if onnx.eos_token_ids else eos if isinstance(eos, list) else [eos],
    }
    if found["eos_token_ids"] == [None]:
        del found["eos_token_ids"]
    tree = msgspec.to_builtins(onnx) | {
        name: value for name, value in found.items() if value is not None
    }
    try:
        told = msgspec.convert(tree, type(onnx))
    except msgspec.ValidationError as error:
        expected = f"a config.json with tokens that are numbers: {error}"
        raise ConfigError("onnx", "(as there)", expected, place=str(path)) from None
    return msgspec.structs.replace(plan, onnx=told)
