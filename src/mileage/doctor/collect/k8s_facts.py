"""Facts of one deployment out of Kubernetes objects: manifests, or what a cluster answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from mileage.doctor.collect.facts_document import FactsDocument, facts_document
from mileage.doctor.collect.k8s_autoscaler import Scaler, scaler_of
from mileage.doctor.collect.k8s_cluster import cluster_facts, knative_defaults
from mileage.doctor.collect.k8s_container import progress_deadline_s
from mileage.doctor.collect.k8s_events import (
    asks_for_nodes,
    event_facts,
    event_lines,
    unplaced_pods,
)
from mileage.doctor.collect.k8s_object import KubeObject, kind_of, name_of, objects_in, owners, word
from mileage.doctor.collect.k8s_pods import pod_facts
from mileage.doctor.collect.k8s_workload import Workload, engine_workloads, workloads_of
from mileage.doctor.collect.merge_facts import SourcedFacts, merge_facts, overlay

__all__ = ["manifest_facts"]

_MADE_BY_ANOTHER: Final = ("ReplicaSet", "StatefulSet", "Deployment")


def manifest_facts(
    documents: object,
    *,
    place: str,
    read_yaml: Callable[[object], Any],
    focus: str | None = None,
) -> tuple[SourcedFacts, ...]:
    """Facts by source out of any objects, in any order: never raises.

    Of several workloads those that run an engine count (`focus`: the one of that name); a setting
    that they do not agree on is left out. `place` names the sources;
    `read_yaml` reads YAML that stands in a ConfigMap, and says None of any other text.
    """
    objects = objects_in(documents)
    all_workloads = workloads_of(objects)
    workloads = engine_workloads(all_workloads, focus)
    scalers = _scalers_of(objects, workloads, all_workloads, focus)
    events = [item for item in objects if kind_of(item) == "Event"]
    pods = _pods_of(objects, workloads)
    about = _events_about(events, workloads, pods, scalers)
    # A scaler's step to nothing says more than the count that is left.
    seen = overlay(event_facts(about), *(each.seen for each in scalers), pod_facts(pods, about))
    if not pods and (unplaced := unplaced_pods(about)):
        waiting = facts_document(signals={"replicas_pending": {"min": len(unplaced)}})
        seen = overlay(seen, waiting)
    if lines := event_lines(about):
        seen = overlay(seen, facts_document(logs=lines))
    cluster = cluster_facts(objects, read_yaml=read_yaml, grows=asks_for_nodes(objects))
    told = overlay(
        _agreed([_of_workload(each) for each in workloads]),
        _agreed([scaler.configured for scaler in scalers]),
        cluster,
        _orchestrator(objects),
    )
    defaults = overlay(
        _agreed([each.container.defaults for each in workloads]),
        knative_defaults(objects) if any(_is_knative(each) for each in scalers) else {},
        _agreed([scaler.defaults for scaler in scalers]),
    )
    parts = (
        SourcedFacts(source=f"state in {place}", standing="measured", document=seen),
        SourcedFacts(source=place, standing="configured", document=told),
        SourcedFacts(source=f"defaults of {place}", standing="default", document=defaults),
    )
    return tuple(part for part in parts if part.document)


def _of_workload(workload: Workload) -> FactsDocument:
    own: dict[str, Any] = {}
    deadline_s = progress_deadline_s(workload.item)
    if deadline_s is not None and workload.kind == "Deployment":
        own["k8s.startup_deadline_s"] = deadline_s
    topology = {"replicas": workload.replicas} if workload.replicas else {}
    # A probe ends a pod; the deadline of a Deployment tells that it made no progress.
    return overlay(workload.container.configured, facts_document(settings=own, topology=topology))


def _scalers_of(
    objects: Sequence[KubeObject],
    workloads: Sequence[Workload],
    others: Sequence[Workload],
    focus: str | None,
) -> list[Scaler]:
    """Autoscalers of the workloads; one whose target is another workload at hand is none."""
    found = [scaler for item in objects if (scaler := scaler_of(item)) is not None]
    ours = {workload.name for workload in workloads} | ({focus} if focus is not None else set())
    matched = [scaler for scaler in found if {scaler.target, scaler.name} & (ours - {None})]
    if matched:
        return matched
    theirs = {workload.name for workload in others}
    return [scaler for scaler in found if scaler.target not in theirs]


def _pods_of(objects: Sequence[KubeObject], workloads: Sequence[Workload]) -> list[KubeObject]:
    """Pods of the workloads: by their owner, or by the name that all pods of one begin with."""
    pods = [item for item in objects if kind_of(item) == "Pod"]
    names = {workload.name for workload in workloads if workload.name is not None}
    sets = {
        name_of(item)
        for item in objects
        if kind_of(item) in _MADE_BY_ANOTHER and any(owner in names for _, owner in owners(item))
    }
    found = []
    for pod in pods:
        made_by = {name for _, name in owners(pod)}
        own = name_of(pod) or ""
        by_name = any(own == name or own.startswith(f"{name}-") for name in names)
        if made_by & (names | sets) or by_name:
            found.append(pod)
    return found


def _events_about(
    events: Sequence[KubeObject],
    workloads: Sequence[Workload],
    pods: Sequence[KubeObject],
    scalers: Sequence[Scaler],
) -> list[KubeObject]:
    """Events of what is looked at; all of them where nothing has a name."""
    names = {each.name for each in workloads} | {name_of(pod) for pod in pods}
    names |= {each.name for each in scalers} | {f"keda-hpa-{each.name}" for each in scalers}
    known = {name for name in names if name is not None}
    if not known:
        return list(events)
    found = []
    for event in events:
        about = word(event, "involvedObject", "name") or word(event, "regarding", "name") or ""
        if about in known or any(about.startswith(f"{name}-") for name in known):
            found.append(event)
    return found


def _agreed(documents: Sequence[FactsDocument]) -> FactsDocument:
    """The facts of all; without those of which two say different things."""
    parts = [
        SourcedFacts(source=str(number), standing="configured", document=document)
        for number, document in enumerate(documents)
    ]
    merged = merge_facts(parts)
    apart = {conflict.fact for conflict in merged.conflicts}
    return {
        section: kept
        for section, values in merged.document.items()
        if (
            kept := values
            if isinstance(values, list)
            else {n: v for n, v in values.items() if f"{section}.{n}" not in apart}
        )
    }


def _orchestrator(objects: Sequence[KubeObject]) -> FactsDocument:
    is_cluster = any(word(item, "apiVersion") and kind_of(item) for item in objects)
    return facts_document(topology={"orchestrator": "kubernetes"} if is_cluster else {})


def _is_knative(scaler: Scaler) -> bool:
    settings = scaler.configured.get("settings", {})
    return bool(settings.get("autoscaler.kind") == "knative")
