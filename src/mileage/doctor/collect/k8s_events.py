"""What events tell: metrics that cannot be fetched, pods without a place, steps of a scaler."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from mileage.doctor.collect.facts_document import FactsDocument, facts_document, whole
from mileage.doctor.collect.k8s_object import KubeObject, kind_of, word
from mileage.doctor.collect.k8s_pods import event_count

__all__ = ["asks_for_nodes", "event_facts", "event_lines", "unplaced_pods"]

LINES_MAX: Final = 200
LINE_MAX: Final = 1000
_FETCH: Final = re.compile(
    r"Failed(Get|Compute)\w*Metric\w*|KEDAScalerFailed|KEDAMetricsServerError"
)
_UP: Final = re.compile(r"(?i)above target")
_DROP: Final = re.compile(r"(?i)\bfrom (\d{1,9}) to 0\b")
_SCALERS: Final = ("HorizontalPodAutoscaler", "ScaledObject", "ScaledJob")


def event_facts(events: Sequence[KubeObject]) -> FactsDocument:
    """Counts of the events at hand: those of the last hour, as long as a cluster keeps them.

    What did not happen among them is not told as 0 but where a scaler's own events are there.
    """
    signals: dict[str, Any] = {}
    of_scaler = [event for event in events if _kind(event) in _SCALERS]
    errors = sum(event_count(event) for event in of_scaler if _FETCH.match(_reason(event)))
    if errors:
        signals["autoscaler_metric_errors_count"] = whole(errors)
    ups = [event for event in of_scaler if _is_up(event)]
    if any(_reason(event) == "SuccessfulRescale" for event in of_scaler) or ups:
        signals["scale_up_events_count"] = whole(sum(event_count(event) for event in ups))
    to_zero = [event for event in of_scaler if _reason(event) == "KEDAScaleTargetDeactivated"]
    if to_zero:
        signals["scale_to_zero_events_count"] = whole(sum(event_count(e) for e in to_zero))
        drops = [m for e in to_zero if (m := _DROP.search(word(e, "message") or ""))]
        if drops:
            most = max(int(drop[1]) for drop in drops)
            signals["replicas_current"] = {"series": [{"value": most}, {"value": 0}]}
    return facts_document(signals=signals)


def event_lines(events: Sequence[KubeObject]) -> list[str]:
    """Warnings, and what ended or scaled something, as lines of a log."""
    found: list[str] = []
    for event in events:
        kept = ("Killing", "SuccessfulRescale", "TriggeredScaleUp", "KEDAScaleTargetDeactivated")
        if word(event, "type") != "Warning" and _reason(event) not in kept:
            continue
        message = " ".join((word(event, "message") or word(event, "note") or "").split())
        line = f"{_reason(event)} {_kind(event)}: {message}"[:LINE_MAX]
        found.append("".join(c for c in line if c.isprintable()))
    return list(dict.fromkeys(found))[-LINES_MAX:]


def unplaced_pods(events: Sequence[KubeObject]) -> set[str]:
    """Pods that found no node."""
    return {
        name
        for event in events
        if _reason(event) == "FailedScheduling" and (name := _about(event)) is not None
    }


def asks_for_nodes(objects: Sequence[KubeObject]) -> bool:
    """Does something add nodes where pods find none?"""
    return any(
        kind_of(item) in ("NodePool", "Provisioner", "NodeClaim", "Machine", "MachineSet")
        or (kind_of(item) == "Event" and _reason(item) in ("TriggeredScaleUp", "Nominated"))
        for item in objects
    )


def _is_up(event: KubeObject) -> bool:
    if _reason(event) == "KEDAScaleTargetActivated":
        return True
    return _reason(event) == "SuccessfulRescale" and bool(_UP.search(word(event, "message") or ""))


def _reason(event: KubeObject) -> str:
    return word(event, "reason") or ""


def _kind(event: KubeObject) -> str:
    return word(event, "involvedObject", "kind") or word(event, "regarding", "kind") or ""


def _about(event: KubeObject) -> str | None:
    return word(event, "involvedObject", "name") or word(event, "regarding", "name")
