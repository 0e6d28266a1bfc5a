"""Workloads of a cluster: which of all objects runs the engine, with how many replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from mileage.doctor.collect.k8s_container import ContainerFacts, container_facts
from mileage.doctor.collect.k8s_object import KubeObject, kind_of, name_of, owners, rows, table
from mileage.doctor.collect.k8s_quantity import quantity

__all__ = ["Workload", "engine_workloads", "workloads_of"]

_DEPTH_MAX: Final = 12
_MADE: Final = frozenset({"ReplicaSet", "Pod", "ControllerRevision", "Revision", "Configuration"})
"""Kinds that others make copies of their own template for."""
_CONTAINERS: Final = ("containers",)
_PREDICTORS: Final = ("model", "vllm", "huggingface", "triton")
"""Keys of a KServe predictor that hold one container."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """An object that runs containers, and the one of them that matters most."""

    kind: str
    name: str | None
    item: KubeObject
    container: ContainerFacts
    replicas: float | None
    """That its author asks for; None where something else decides."""

    @property
    def runs_engine(self) -> bool:
        """Does it start an engine that we know?"""
        return self.container.engine is not None


def workloads_of(objects: Sequence[KubeObject]) -> list[Workload]:
    """All that run containers, each once: what a Deployment made of itself is left out."""
    names = {(kind_of(item), name_of(item)) for item in objects}
    found = []
    for item in objects:
        kind = kind_of(item)
        if kind in _MADE and any(owner in names for owner in owners(item)):
            continue
        containers = [container_facts(row) for row in _containers(item, 0)]
        if not containers:
            continue
        # An engine before a card, a card before a sidecar; of several engines the larger.
        best = max(containers, key=lambda c: (c.engine is not None, c.gpus or 0.0))
        replicas = quantity(table(item, "spec").get("replicas"))
        found.append(
            Workload(kind=kind, name=name_of(item), item=item, container=best, replicas=replicas)
        )
    return found


def engine_workloads(workloads: Sequence[Workload], focus: str | None) -> list[Workload]:
    """Those that run an engine; else those with a GPU; of a name where one is asked for."""
    named = [each for each in workloads if focus is None or _is_named(each, focus)]
    engines = [each for each in named if each.runs_engine]
    if engines:
        return engines
    cards = [each for each in named if each.container.gpus is not None]
    return cards or (named if focus is not None else [])


def _is_named(workload: Workload, focus: str) -> bool:
    """By its own name, or by that of what made it: pods have more behind."""
    name = workload.name or ""
    if name == focus or any(owner == focus for _, owner in owners(workload.item)):
        return True
    return workload.kind in ("Pod", "ReplicaSet") and name.startswith(f"{focus}-")


def _containers(value: Any, depth: int) -> Iterator[KubeObject]:
    """Containers of any pod template inside of an object, of whatever kind it is."""
    if depth > _DEPTH_MAX:
        return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in ("status", "metadata", "initContainers"):
                continue
            if key in _CONTAINERS:
                yield from rows(value, key)
            elif key == "predictor" and isinstance(inner, Mapping):
                yield from (table(inner, name) for name in _PREDICTORS if table(inner, name))
                yield from _containers(inner, depth + 1)
            else:
                yield from _containers(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value[:1000]:
            yield from _containers(inner, depth + 1)
