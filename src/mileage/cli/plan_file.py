"""read_plan(): the plan of an engine, out of a file and of KEY=VALUE on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import msgspec

from mileage.cli.config_document import Document
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

_CONFIGURATION: Final = "docs/reference/configuration.md"
"""Where the reader of files points at for a key that does not exist."""
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
    try:
        document = Document(path, _flags(assignments), {}, EnginePlan)
    except ConfigError as error:
        raise error.named(error.key.replace("--config", "PLAN")) from None
    try:
        return document, document.decode(EnginePlan)
    except ConfigError as error:
        expected = error.expected
        if expected.endswith(_CONFIGURATION):
            expected = f"{_known(error.key)}; see docs/reference/engine-plan.md"
        raise ConfigError(error.key, error.value, expected, place=error.place) from None


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


def _known(key: str) -> str:
    """What is told of a key that does not exist: the nearest ones, else all of its table."""
    table, _, name = key.rpartition(".")
    known = _TABLES.get(table, EnginePlan).__struct_fields__
    near = get_close_matches(name, known, n=3) or known
    return f"a key such as {', '.join(near)}"
