"""Series of kube-state-metrics and cAdvisor -> replicas over time, pods, CPU and its quota."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from math import isfinite
from typing import Any, Final

from mileage.doctor.collect.facts_document import FactsDocument, facts_document, per_unit, whole
from mileage.doctor.collect.prometheus_answers import PromSeries, pod_of

__all__ = ["CLUSTER_NAMES", "cluster_series_facts"]

CLUSTER_NAMES: Final = (
    "kube_horizontalpodautoscaler_spec_min_replicas",
    "kube_horizontalpodautoscaler_spec_max_replicas",
    "kube_horizontalpodautoscaler_status_current_replicas",
    "kube_horizontalpodautoscaler_status_desired_replicas",
    "kube_pod_status_phase",
    "kube_pod_container_status_restarts_total",
    "kube_pod_container_resource_limits",
    "kube_pod_container_resource_requests",
    "container_cpu_cfs_periods_total",
    "container_cpu_cfs_throttled_periods_total",
    "container_cpu_usage_seconds_total",
)
_HPA: Final = "horizontalpodautoscaler"


def cluster_series_facts(series: Sequence[PromSeries], pods: Collection[str]) -> FactsDocument:
    """Facts of the pods that the engine was seen in; of all, where none was. Never raises.

    Of an autoscaler's counts all are taken where there is one; of several none, since which of them
    is the engine's is not known from here.
    """
    by_name: dict[str, list[PromSeries]] = {}
    for each in series:
        if not pods or _HPA in each.name or pod_of(each.labels) in pods:
            by_name.setdefault(each.name, []).append(each)
    signals: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    scalers = {each.labels.get(_HPA) for name in by_name if _HPA in name for each in by_name[name]}
    if len(scalers) == 1:
        start = f"kube_{_HPA}_"
        for fact, name in (("replicas_current", "current"), ("replicas_desired", "desired")):
            signals[fact] = _over_time(by_name.get(f"{start}status_{name}_replicas", []))
        for end in ("min", "max"):
            found = _last(by_name.get(f"{start}spec_{end}_replicas", []))
            if found:
                settings[f"hpa.{end}_replicas"] = max(found)
    phases = by_name.get("kube_pod_status_phase", [])
    pending = [each for each in phases if each.labels.get("phase") == "Pending"]
    if pending:
        signals["replicas_pending"] = whole(sum(_last(pending)))
    restarts = by_name.get("kube_pod_container_status_restarts_total", [])
    if restarts:
        signals["process_restarts_count"] = per_unit(_by_pod(restarts, _grown))
    signals |= _cpu(by_name)
    for kind in ("request", "limit"):
        settings |= _resources(by_name.get(f"kube_pod_container_resource_{kind}s", []), kind)
    return facts_document(signals=signals, settings=settings)


def _cpu(by_name: Mapping[str, Sequence[PromSeries]]) -> dict[str, Any]:
    """Throttling as the share of the periods of the quota that were cut, as the kernel counts."""
    periods = _of_containers(by_name.get("container_cpu_cfs_periods_total", []))
    cut = _of_containers(by_name.get("container_cpu_cfs_throttled_periods_total", []))
    shares = [
        min(1.0, cut[place] / count) for place, count in periods.items() if count and place in cut
    ]
    used = by_name.get("container_cpu_usage_seconds_total", [])
    cores = {
        place: grown / seconds
        for place, grown in _of_containers(used).items()
        if (seconds := _seconds(used)) > 0
    }
    return {
        "cpu_throttled_ratio": per_unit(shares),
        "cpu_cores_used": per_unit([cores[place] for place in sorted(cores)]),
    }


def _of_containers(series: Sequence[PromSeries]) -> dict[tuple[str, str], float]:
    """Growth by pod and container; the pod's own sum and its pause container are left out."""
    found: dict[tuple[str, str], float] = {}
    for each in series:
        container = each.labels.get("exported_container") or each.labels.get("container", "")
        if container in ("", "POD"):
            continue
        place = (pod_of(each.labels), container)
        found[place] = found.get(place, 0.0) + _grown(each)
    return dict(sorted(found.items()))


def _resources(series: Sequence[PromSeries], kind: str) -> dict[str, Any]:
    """CPUs and GPUs of a container, where all that have them have the same."""
    found: dict[str, Any] = {}
    for resource, name in (("cpu", f"k8s.cpu_{kind}"), ("nvidia_com_gpu", "k8s.gpu_request")):
        own = [each for each in series if each.labels.get("resource") == resource]
        values = set(_last(own))
        if len(values) == 1:
            found[name] = whole(values.pop())
    return found


def _over_time(series: Sequence[PromSeries]) -> object:
    """A series over time, of the one there is; its one value where it has no second."""
    if len(series) != 1:
        return None
    points = _numbers(series[0])
    if len(points) < 2:
        return whole(points[0][1]) if points else None
    start_s = points[0][0]
    return {"series": [{"t_s": whole(t - start_s), "value": whole(v)} for t, v in points]}


def _by_pod(series: Iterable[PromSeries], read: Any) -> list[float]:
    """Of each pod its container with the highest value."""
    found: dict[str, float] = {}
    for each in series:
        pod = pod_of(each.labels)
        found[pod] = max(found.get(pod, 0.0), read(each))
    return [whole(found[pod]) for pod in sorted(found)]


def _last(series: Iterable[PromSeries]) -> list[float]:
    return [points[-1][1] for each in series if (points := _numbers(each))]


def _grown(series: PromSeries) -> float:
    """What a counter grew by; one that fell began anew."""
    values = [value for _, value in _numbers(series)]
    return sum(b - a if b >= a else b for a, b in pairwise(values))


def _seconds(series: Sequence[PromSeries]) -> float:
    times = [at_s for each in series for at_s, _ in each.points]
    return max(times) - min(times) if times else 0.0


def _numbers(series: PromSeries) -> list[tuple[float, float]]:
    found = []
    for at_s, written in series.points:
        try:
            value = float(written)
        except ValueError:
            continue
        if isfinite(value) and 0 <= value < 1e18:
            found.append((at_s, value))
    return found
