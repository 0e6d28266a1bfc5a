"""GPUs of a cluster's nodes, and how the device plugin lets pods share them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from mileage.doctor.collect.facts_document import FactsDocument, facts_document, whole
from mileage.doctor.collect.k8s_container import GPU_RESOURCES, gpus_of
from mileage.doctor.collect.k8s_object import (
    KubeObject,
    at,
    kind_of,
    labels,
    name_of,
    rows,
    table,
    word,
)
from mileage.doctor.collect.k8s_quantity import duration_s, quantity

__all__ = ["cluster_facts", "knative_defaults"]

_MIB_GB: Final = 1024**2 / 1e9
_MIG: Final = re.compile(r"nvidia\.com/mig-\d+g\.\d+gb\S*")
_MIG_PRODUCT: Final = re.compile(r"-MIG-(\d+g\.\d+gb)")
_STRATEGIES: Final = {"time-slicing": "time_slicing", "mps": "mps", "none": "none"}


def cluster_facts(
    objects: Sequence[KubeObject], *, read_yaml: Callable[[object], Any], grows: bool = False
) -> FactsDocument:
    """GPUs that pods can be given, their kind, and how they are shared. Never raises.

    `read_yaml` reads the texts of a device plugin's ConfigMap; None of what is no YAML. With
    `grows` something adds nodes: what is there now is the least that there can be. What nodes
    do not agree on is left out.
    """
    nodes = [item for item in objects if kind_of(item) == "Node"]
    with_gpus = [node for node in nodes if _gpus(node)]
    hardware: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    if with_gpus:
        gpus = whole(sum(_gpus(node) for node in with_gpus if not _is_closed(node)))
        hardware["schedulable_gpus"] = {"min": gpus} if grows else gpus
    hardware |= _agreed(_node_hardware(node) for node in with_gpus)
    settings |= _agreed(_node_sharing(node) for node in with_gpus)
    # What a node says it does stands over what a plugin's configuration asks for.
    settings = {**_agreed(_plugin_sharing(item, read_yaml) for item in objects), **settings}
    if (pods := _pods_on_gpu(objects, with_gpus)) is not None:
        settings["k8s.pods_on_gpu"] = pods
    return facts_document(hardware=hardware, settings=settings)


def knative_defaults(objects: Sequence[KubeObject]) -> FactsDocument:
    """What Knative's own configuration says for all services that say nothing."""
    settings: dict[str, Any] = {}
    for item in objects:
        if kind_of(item) != "ConfigMap":
            continue
        data = table(item, "data")
        if name_of(item) == "config-autoscaler":
            window = duration_s(data.get("stable-window"))
            kept = duration_s(data.get("scale-to-zero-pod-retention-period"))
            if window is not None or kept is not None:
                both = (60 if window is None else window) + (kept or 0)
                settings["knative.scale_to_zero_window_s"] = both
        if name_of(item) == "config-deployment":
            deadline = duration_s(data.get("progress-deadline"))
            if deadline is not None:
                settings["k8s.startup_deadline_s"] = deadline
    return facts_document(settings=settings)


def _gpus(node: KubeObject) -> float:
    """GPUs that pods of a node can be given: whole ones, copies or MIG slices."""
    given = table(node, "status", "allocatable") or table(node, "status", "capacity")
    return sum(
        quantity(value) or 0.0
        for name, value in given.items()
        if name in GPU_RESOURCES or _MIG.fullmatch(str(name))
    )


def _is_closed(node: KubeObject) -> bool:
    return at(node, "spec", "unschedulable") is True


def _node_hardware(node: KubeObject) -> dict[str, Any]:
    said = labels(node)
    found: dict[str, Any] = {}
    product = word(said.get("nvidia.com/gpu.product")) or word(
        said.get("cloud.google.com/gke-accelerator")
    )
    if product is not None:
        profile = _MIG_PRODUCT.search(product)
        if profile is not None:
            found["mig_profile"] = profile[1]
        found["gpu"] = _MIG_PRODUCT.sub("", product).removesuffix("-SHARED")
    memory = quantity(said.get("nvidia.com/gpu.memory"))
    if memory is not None and memory > 0 and "mig_profile" not in found:
        found["memory_gb"] = round(memory * _MIB_GB, 1)
    cpus = quantity(at(node, "status", "capacity", "cpu"))
    if cpus is not None and cpus >= 1:
        found["cpus"] = int(cpus)
    return found


def _node_sharing(node: KubeObject) -> dict[str, Any]:
    said = labels(node)
    found: dict[str, Any] = {}
    strategy = _STRATEGIES.get(word(said.get("nvidia.com/gpu.sharing-strategy")) or "")
    copies = quantity(said.get("nvidia.com/gpu.replicas"))
    product = word(said.get("nvidia.com/gpu.product")) or ""
    if _MIG_PRODUCT.search(product) or _has_mig_slices(node):
        found["k8s.gpu_sharing"] = "mig"
    elif strategy is not None:
        found["k8s.gpu_sharing"] = strategy
    elif product.endswith("-SHARED"):
        found["k8s.gpu_sharing"] = "time_slicing"
    if copies is not None and copies >= 1:
        found["k8s.gpu_replicas_label"] = copies
    return found


def _has_mig_slices(node: KubeObject) -> bool:
    given = table(node, "status", "allocatable")
    return any(_MIG.fullmatch(str(name)) and (quantity(given[name]) or 0) > 0 for name in given)


def _plugin_sharing(item: KubeObject, read_yaml: Callable[[object], Any]) -> dict[str, Any]:
    """Of a ConfigMap of NVIDIA's device plugin, whose values are YAML; of Helm values, too."""
    if kind_of(item) == "ConfigMap":
        data = table(item, "data")
        read = [read_yaml(data[name]) for name in data if _is_plugin(data[name])]
        return _agreed(_sharing_of(value) for value in read)
    return _sharing_of(item) if "sharing" in item and not kind_of(item) else {}


def _is_plugin(value: object) -> bool:
    return isinstance(value, str) and ("sharing" in value or "migStrategy" in value)


def _sharing_of(value: object) -> dict[str, Any]:
    for name, kind in (("timeSlicing", "time_slicing"), ("mps", "mps")):
        copies = {
            count
            for row in rows(value, "sharing", name, "resources")
            if (count := quantity(row.get("replicas"))) is not None and count >= 1
        }
        if copies:
            found: dict[str, Any] = {"k8s.gpu_sharing": kind}
            if len(copies) == 1:
                found["k8s.gpu_replicas_label"] = copies.pop()
            return found
    if word(value, "flags", "migStrategy") in ("single", "mixed"):
        return {"k8s.gpu_sharing": "mig"}
    return {}


def _pods_on_gpu(objects: Sequence[KubeObject], nodes: Sequence[KubeObject]) -> float | None:
    """Pods with a GPU on the node that has most of them, among nodes of one card."""
    cards = {
        name_of(node) for node in nodes if quantity(labels(node).get("nvidia.com/gpu.count")) == 1
    }
    counts: dict[str | None, int] = {}
    for pod in objects:
        node = word(pod, "spec", "nodeName")
        if kind_of(pod) != "Pod" or node not in cards:
            continue
        is_running = word(pod, "status", "phase") == "Running"
        if is_running and any(gpus_of(row) for row in rows(pod, "spec", "containers")):
            counts[node] = counts.get(node, 0) + 1
    return max(counts.values(), default=None)


def _agreed(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What all that say something about a name say alike."""
    values: dict[str, list[Any]] = {}
    for part in parts:
        for name, value in part.items():
            values.setdefault(name, []).append(value)
    return {name: said[0] for name, said in values.items() if all(one == said[0] for one in said)}
