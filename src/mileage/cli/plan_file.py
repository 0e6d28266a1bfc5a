"""read_plan(): the plan of an engine, out of a file and of KEY=VALUE on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mileage.cli.config_document import Document
from mileage.cli.keyed_file import read_keyed
from mileage.core.errors import ConfigError
from mileage.engines.configuration.plan import EnginePlan
from mileage.engines.configuration.plan_parts import (
    LoraPlan,
    OnnxPlan,
    SpeculationPlan,
    TritonPlan,
    TrtllmPlan,
)

__all__ = ["read_plan", "read_plan_document"]

_PAGE: Final = "docs/reference/engine-plan.md"
_TABLES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "lora": LoraPlan,
    "onnx": OnnxPlan,
    "speculation": SpeculationPlan,
    "triton": TritonPlan,
    "trtllm": TrtllmPlan,
}


def read_plan(path: Path | None, assignments: Iterable[str] = ()) -> EnginePlan:
    """The plan of a TOML file, or of a JSON one (*.json), with what `assignments` say over it.

    Each is KEY=VALUE: a dotted key, and a value that is JSON, or text where it is none. Raises
    ConfigError, which names the key and the line of the file.
    """
    return read_plan_document(path, assignments)[1]


def read_plan_document(
    path: Path | None, assignments: Iterable[str] = ()
) -> tuple[Document, EnginePlan]:
    """`read_plan`, and what tells the lines of its keys."""
    return read_keyed(
        path, _flags(assignments), EnginePlan, name="PLAN", tables=_TABLES, page=_PAGE
    )


def _flags(assignments: Iterable[str]) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not all(key.split(".")):
            raise ConfigError("--set", text, "KEY=VALUE, such as running_max=64")
        try:
            flags[key] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            flags[key] = value
    return flags
