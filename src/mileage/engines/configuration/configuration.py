"""Configuration: what one engine is started with, and what of the plan it has no words for."""

from __future__ import annotations

from typing import Final

import msgspec

from mileage.core.errors import ConfigError
from mileage.engines.configuration.cache_size import CacheSize
from mileage.engines.configuration.plan import EnginePlan

__all__ = ["Configuration", "PlanFields", "PlanWarning", "set_fields"]

_SIZING: Final = frozenset({"gpu", "architecture"})
"""What the plan is checked with, and no engine is told."""
_FOREIGN: Final = {
    "queue_delay_ms": "it starts a step as soon as there is a request; none waits for others",
    "preferred_batch_sizes": "its batches are what runs in a step, of any size",
    "trtllm": "it is for TensorRT-LLM alone",
    "triton": "it is for Triton alone",
    "onnx": "it is for ONNX Runtime GenAI alone",
}


class PlanWarning(msgspec.Struct, frozen=True):
    """A field of the plan that the engine is not told, or not as the plan says, and why."""

    field: str
    message: str


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """Commands and files for one engine."""

    engine: str
    commands: tuple[tuple[str, ...], ...] = ()
    """Command lines, each as a list of its words. One for each instance, or for each stage."""
    environment: dict[str, str] = {}
    """Variables that the commands need."""
    files: dict[str, str] = {}
    """Name -> text."""
    warnings: tuple[PlanWarning, ...] = ()
    kv_cache: CacheSize | None = None
    """What was computed of the KV cache of one instance, where the plan names a GPU."""


class PlanFields:
    """Reads a plan for one engine, and tells which of its fields nobody asked for.

    A generator takes each field that it expresses. `warnings()` names every other one that the
    plan sets: so nothing is dropped in silence, and a field that is added to the plan is told of
    by all engines that were not taught it.
    """

    def __init__(self, plan: EnginePlan, title: str) -> None:
        """`title`: the engine's name for people."""
        self.plan, self.title = plan, title
        self._taken: set[str] = set(_SIZING)
        self._warnings: list[PlanWarning] = []

    def take(self, *names: str) -> None:
        """These fields are expressed; dotted for those of tables."""
        self._taken.update(names)

    def warn(self, name: str, message: str) -> None:
        """This field is told of, and not expressed as it stands."""
        self._taken.add(name)
        self._warnings.append(PlanWarning(name, message))

    def refuse(self, name: str, value: object, expected: str) -> ConfigError:
        """The error of a value that this engine has not."""
        self._taken.add(name)
        return ConfigError(name, value, f"{expected}, for {self.title}")

    def choice(self, name: str, value: str, known: dict[str, str]) -> str:
        """What the engine calls the value; ConfigError where it has no such thing."""
        self.take(name)
        if value not in known:
            raise self.refuse(name, value, f"one of {', '.join(known)}")
        return known[value]

    def warnings(self) -> tuple[PlanWarning, ...]:
        """All of them, in the order of the plan's fields, those not taken included."""
        for name in set_fields(self.plan):
            table = name.partition(".")[0]
            if name not in self._taken and table not in self._taken:
                reason = _FOREIGN.get(table, "it has no such setting")
                self._warnings.append(PlanWarning(name, f"not told to {self.title}: {reason}"))
        order = {name: at for at, name in enumerate(EnginePlan.__struct_fields__)}
        return tuple(sorted(self._warnings, key=lambda each: order[each.field.partition(".")[0]]))


def set_fields(plan: EnginePlan) -> list[str]:
    """Dotted names of the fields that are not as they come; of a table that is not there unless
    asked for, all."""
    found: list[str] = []
    for field in msgspec.structs.fields(plan):
        value, default = getattr(plan, field.name), field.default
        if isinstance(value, msgspec.Struct):
            found += [
                f"{field.name}.{name}"
                for name in value.__struct_fields__
                if default is None or getattr(value, name) != getattr(default, name)
            ]
        elif value != default:
            found.append(field.name)
    return found
