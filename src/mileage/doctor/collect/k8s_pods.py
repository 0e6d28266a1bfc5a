"""What the status of pods tells: pending, restarted, ended while they were starting."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mileage.doctor.collect.facts_document import FactsDocument, facts_document, per_unit, whole
from mileage.doctor.collect.k8s_object import KubeObject, kind_of, name_of, rows, table, word
from mileage.doctor.collect.k8s_quantity import quantity, time_s

__all__ = ["event_count", "pod_facts"]

_STARTUP_KILL: Final = re.compile(r"(?i)failed startup probe")
_LIVENESS_KILL: Final = re.compile(r"(?i)failed liveness probe")
_KILLED: Final = (137.0, 143.0)
"""Exit codes of SIGKILL and SIGTERM."""


class _Kill(msgspec.Struct, frozen=True):
    """A container that was ended by a probe, not by itself."""

    age_s: float | None


def pod_facts(pods: Sequence[KubeObject], events: Sequence[KubeObject]) -> FactsDocument:
    """Signals of the pods of one workload and of the events about them. Never raises.

    A pod whose run has ended does not count. `pod_age_at_kill_s` is the time that a container ran
    which a probe ended before it was ready, one value for each pod.
    """
    alive = [pod for pod in pods if word(pod, "status", "phase") not in ("Succeeded", "Failed")]
    signals: dict[str, Any] = {}
    with_status = [pod for pod in alive if word(pod, "status", "phase") is not None]
    if with_status:
        pending = sum(word(pod, "status", "phase") == "Pending" for pod in with_status)
        signals["replicas_pending"] = pending
        signals["replicas_current"] = len(with_status)
        signals["replicas_ready"] = sum(_is_ready(pod) for pod in with_status)
        restarts = [count for pod in with_status if (count := _restarts(pod)) is not None]
        if restarts:
            signals["process_restarts_count"] = per_unit(restarts)
    kills = [kill for pod in alive if (kill := _kill(pod, events)) is not None]
    counted = _counted(pods, events)
    if counted:
        signals["pod_kill_before_ready_count"] = whole(counted)
    elif kills:
        signals["pod_kill_before_ready_count"] = {"min": len(kills)}
    ages = [kill.age_s for kill in kills if kill.age_s is not None]
    if ages:
        signals["pod_age_at_kill_s"] = per_unit(ages)
    waits = [wait for pod in alive if (wait := _node_wait_s(pod, events)) is not None]
    if waits:
        signals["node_provision_s"] = per_unit(waits)
    return facts_document(signals=signals)


def _is_ready(pod: KubeObject) -> bool:
    conditions = rows(pod, "status", "conditions")
    return any(
        word(row, "type") == "Ready" and word(row, "status") in ("True", "true")
        for row in conditions
    )


def _restarts(pod: KubeObject) -> float | None:
    """Of the container that began anew most often."""
    counts = [quantity(row.get("restartCount")) for row in rows(pod, "status", "containerStatuses")]
    return max((count for count in counts if count is not None), default=None)


def _kill(pod: KubeObject, events: Sequence[KubeObject]) -> _Kill | None:
    """The last end of one of its containers, where a startup probe is known to have caused it."""
    probed = any(
        word(event, "reason") == "Killing" and _STARTUP_KILL.search(word(event, "message") or "")
        for event in _about(pod, events)
    )
    for row in rows(pod, "status", "containerStatuses"):
        ended = table(row, "lastState", "terminated")
        if quantity(ended.get("exitCode")) not in _KILLED or word(ended, "reason") == "OOMKilled":
            continue
        began, end = time_s(ended.get("startedAt")), time_s(ended.get("finishedAt"))
        age = end - began if began is not None and end is not None and end > began else None
        # Without its event a kill is one before ready where the container is not yet up again.
        if probed or (row.get("started") is False and row.get("ready") is False):
            return _Kill(age)
    return _Kill(None) if probed else None


def _counted(pods: Sequence[KubeObject], events: Sequence[KubeObject]) -> float:
    """Kills by startup probes that events count; of liveness probes those of pods never ready."""
    never_ready = {name_of(pod) for pod in pods if not _is_ready(pod)}
    total = 0.0
    for event in events:
        if word(event, "reason") != "Killing":
            continue
        message = word(event, "message") or ""
        about = word(event, "involvedObject", "name") or word(event, "regarding", "name")
        if _STARTUP_KILL.search(message) or (
            _LIVENESS_KILL.search(message) and about in never_ready
        ):
            total += event_count(event)
    return total


def _node_wait_s(pod: KubeObject, events: Sequence[KubeObject]) -> float | None:
    """From a pod's making to its place on a node, where a new node was asked for."""
    if not any(word(event, "reason") == "TriggeredScaleUp" for event in _about(pod, events)):
        return None
    made = time_s(table(pod, "metadata").get("creationTimestamp"))
    placed = [
        time_s(row.get("lastTransitionTime"))
        for row in rows(pod, "status", "conditions")
        if word(row, "type") == "PodScheduled" and word(row, "status") in ("True", "true")
    ]
    if made is None or not placed or placed[0] is None or placed[0] <= made:
        return None
    return whole(placed[0] - made)


def _about(pod: KubeObject, events: Sequence[KubeObject]) -> list[KubeObject]:
    name = name_of(pod)
    return [
        event
        for event in events
        if kind_of(event) == "Event"
        and name is not None
        and name in (word(event, "involvedObject", "name"), word(event, "regarding", "name"))
    ]


def event_count(event: KubeObject) -> float:
    """How often it happened; of a series what the series counts."""
    counts = [
        quantity(event.get("count")),
        quantity(event.get("deprecatedCount")),
        quantity(table(event, "series").get("count")),
    ]
    return max([count for count in counts if count is not None and count > 0], default=1)
