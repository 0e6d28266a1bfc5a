"""Autoscalers of a cluster: HPA, KEDA and Knative, with the defaults of what they leave out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mileage.doctor.collect.facts_document import FactsDocument, facts_document
from mileage.doctor.collect.k8s_object import (
    KubeObject,
    annotations_of,
    at,
    group_of,
    kind_of,
    name_of,
    owners,
    rows,
    table,
    word,
)
from mileage.doctor.collect.k8s_quantity import duration_s, quantity

__all__ = ["Scaler", "metric_name", "scaler_of"]

_HPA_STABILIZATION_S: Final = 300
_HPA_MIN: Final = 1
_KEDA_COOLDOWN_S: Final = 300
_KEDA_POLLING_S: Final = 30
_KEDA_MIN: Final = 0
_KEDA_MAX: Final = 100
_KNATIVE_WINDOW_S: Final = 60
"""Defaults of https://kubernetes.io/docs/reference, https://keda.sh/docs and
https://knative.dev/docs/serving/autoscaling."""
_METRICS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("requests_waiting", re.compile(r"(?i)requests?_(waiting|deferred)|queue_(req|size|length)")),
    ("requests_running", re.compile(r"(?i)requests?_(running|processing)|running_req")),
    ("kv_cache_usage_ratio", re.compile(r"(?i)cache_usage|token_usage|kv_cache_util")),
    ("gpu_util_ratio", re.compile(r"(?i)gpu_util|duty_cycle|utilization[._]gpu")),
    ("gr_engine_active_ratio", re.compile(r"(?i)gr_engine_active")),
    ("sm_active_ratio", re.compile(r"(?i)sm_active")),
    ("tensor_active_ratio", re.compile(r"(?i)tensor_active")),
    ("dram_active_ratio", re.compile(r"(?i)dram_active")),
    ("gpu_mem_used_gb", re.compile(r"(?i)fb_used|gpu_mem")),
)
"""Names that engines and exporters give to what the vocabulary has a name for."""


class Scaler(msgspec.Struct, frozen=True, kw_only=True):
    """One autoscaler: what it scales, what it was told, and what follows where it was not."""

    name: str | None
    target: str | None
    """Name of what it scales."""
    configured: FactsDocument
    defaults: FactsDocument
    seen: FactsDocument
    """Of its status."""


def scaler_of(item: KubeObject) -> Scaler | None:
    """The autoscaler that an object is, or carries in its annotations; None of any other."""
    kind, group = kind_of(item), group_of(item)
    if kind == "HorizontalPodAutoscaler":
        return _hpa(item)
    if kind == "ScaledObject":
        return _keda(item)
    is_knative = group == "serving.knative.dev" and kind in ("Service", "Configuration")
    if is_knative or (kind == "InferenceService" and _knative_annotations(item)):
        return _knative(item)
    return None


def metric_name(text: str) -> str:
    """The vocabulary's name of a metric or of what a query asks for; else the name as it is."""
    for name, pattern in _METRICS:
        if pattern.search(text):
            return name
    return text[:200]


def _hpa(item: KubeObject) -> Scaler:
    spec = table(item, "spec")
    of_keda = any(kind == "ScaledObject" for kind, _ in owners(item))
    settings: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    if not of_keda:
        settings = {"autoscaler.kind": "hpa", **_hpa_bounds(spec), **_followed(_hpa_metrics(spec))}
        defaults = {"hpa.min_replicas": _HPA_MIN}
        settings |= _behavior(table(spec, "behavior"))
        defaults |= _behavior_defaults()
    return Scaler(
        name=name_of(item),
        target=word(spec, "scaleTargetRef", "name"),
        configured=facts_document(settings=settings),
        defaults=facts_document(settings=defaults),
        seen=facts_document(signals=_hpa_status(item)),
    )


def _hpa_bounds(spec: KubeObject) -> dict[str, Any]:
    ends = {
        "hpa.min_replicas": quantity(spec.get("minReplicas")),
        "hpa.max_replicas": quantity(spec.get("maxReplicas")),
    }
    return {name: value for name, value in ends.items() if value is not None}


def _hpa_metrics(spec: KubeObject) -> list[tuple[str, float | None]]:
    """Metrics with their targets; version 1 knows CPU alone."""
    found: list[tuple[str, float | None]] = []
    if "targetCPUUtilizationPercentage" in spec:
        found.append(("cpu", quantity(spec["targetCPUUtilizationPercentage"])))
    for row in rows(spec, "metrics"):
        place = {"Resource": "resource", "ContainerResource": "containerResource"}.get(
            kind := word(row, "type") or "", kind.lower()
        )
        body = table(row, place)
        name = word(body, "metric", "name") or word(body, "name") or word(body, "metricName")
        target = table(body, "target")
        values = [
            quantity(target.get(key)) for key in ("averageValue", "value", "averageUtilization")
        ]
        if name is not None:
            found.append((name, next((v for v in values if v is not None), None)))
    return found


def _followed(metrics: list[tuple[str, float | None]]) -> dict[str, Any]:
    """The metric and its target where there is one; of several the highest count wins, which one
    that is cannot be told from here."""
    if len(metrics) != 1:
        return {}
    name, target = metrics[0]
    found: dict[str, Any] = {"hpa.metric": metric_name(name)}
    if target is not None:
        found["hpa.target"] = target
    return found


def _behavior(behavior: KubeObject) -> dict[str, Any]:
    """How fast it takes replicas away."""
    down = table(behavior, "scaleDown")
    found: dict[str, Any] = {}
    window = quantity(down.get("stabilizationWindowSeconds"))
    if window is not None:
        found["hpa.scale_down_stabilization_s"] = window
    policies = rows(down, "policies")
    if policies and word(down, "selectPolicy") != "Disabled":
        whole_at_once = [
            word(row, "type") == "Percent" and (quantity(row.get("value")) or 0) >= 100
            for row in policies
        ]
        least = word(down, "selectPolicy") == "Min"
        at_once = all(whole_at_once) if least else any(whole_at_once)
        found["hpa.scale_down_policy"] = "immediate" if at_once else "gradual"
    return found


def _behavior_defaults() -> dict[str, Any]:
    """All at once after five minutes."""
    return {
        "hpa.scale_down_stabilization_s": _HPA_STABILIZATION_S,
        "hpa.scale_down_policy": "immediate",
    }


def _hpa_status(item: KubeObject) -> dict[str, Any]:
    status = table(item, "status")
    signals: dict[str, Any] = {
        "replicas_current": quantity(status.get("currentReplicas")),
        "replicas_desired": quantity(status.get("desiredReplicas")),
    }
    values: list[float] = []
    for row in rows(status, "currentMetrics"):
        for body in row.values():
            current = table(body, "current")
            read = [
                quantity(current.get(key))
                for key in ("averageValue", "value", "averageUtilization")
            ]
            values += [v for v in read[:1] + read[1:] if v is not None][:1]
    if len(values) == 1:
        signals["hpa_metric_value"] = values[0]
    failed = [
        row
        for row in rows(status, "conditions")
        if word(row, "type") == "ScalingActive"
        and word(row, "status") in ("False", "false")
        and re.match(r"Failed\w*Metric|InvalidMetric", word(row, "reason") or "")
    ]
    if failed:
        signals["autoscaler_metric_errors_count"] = {"min": 1}
    return signals


def _keda(item: KubeObject) -> Scaler:
    spec = table(item, "spec")
    advanced = table(spec, "advanced", "horizontalPodAutoscalerConfig", "behavior")
    least = quantity(spec.get("minReplicaCount"))
    settings: dict[str, Any] = {
        "autoscaler.kind": "keda",
        "keda.idle_replicas": quantity(spec.get("idleReplicaCount")),
        **_behavior(advanced),
        **_followed(_triggers(spec)),
    }
    said = {
        "keda.min_replicas": least,
        "hpa.min_replicas": least,
        "hpa.max_replicas": quantity(spec.get("maxReplicaCount")),
        "keda.cooldown_s": quantity(spec.get("cooldownPeriod")),
        "keda.polling_s": quantity(spec.get("pollingInterval")),
    }
    settings |= {name: value for name, value in said.items() if value is not None}
    defaults = {
        "keda.min_replicas": _KEDA_MIN,
        "hpa.min_replicas": _KEDA_MIN,
        "hpa.max_replicas": _KEDA_MAX,
        "keda.cooldown_s": _KEDA_COOLDOWN_S,
        "keda.polling_s": _KEDA_POLLING_S,
        **_behavior_defaults(),
    }
    return Scaler(
        name=name_of(item),
        target=word(spec, "scaleTargetRef", "name"),
        configured=facts_document(settings=settings),
        defaults=facts_document(settings=defaults),
        seen=_keda_status(item),
    )


def _triggers(spec: KubeObject) -> list[tuple[str, float | None]]:
    """What its triggers follow; of Prometheus that is what the query asks for."""
    found: list[tuple[str, float | None]] = []
    for row in rows(spec, "triggers"):
        said = table(row, "metadata")
        kind = word(row, "type") or ""
        name = word(said, "query") or word(said, "metricName") or word(said, "metric") or kind
        targets = (quantity(said.get(key)) for key in ("threshold", "targetValue", "value"))
        found.append((name, next((v for v in targets if v is not None), None)))
    return found


def _keda_status(item: KubeObject) -> FactsDocument:
    """Fetches of metrics that fail, by its conditions and its count for each trigger."""
    status = table(item, "status")
    health = status.get("health")
    counts = [
        count
        for row in (health.values() if isinstance(health, Mapping) else ())
        if (count := quantity(at(row, "numberOfFailures"))) is not None
    ]
    if any(counts):
        return facts_document(signals={"autoscaler_metric_errors_count": sum(counts)})
    failing = any(
        word(row, "type") == "Fallback" and word(row, "status") in ("True", "true")
        for row in rows(status, "conditions")
    )
    return facts_document(
        signals={"autoscaler_metric_errors_count": {"min": 1} if failing else None}
    )


def _knative_annotations(item: KubeObject) -> dict[str, object]:
    """Annotations of its autoscaler by their name in one spelling: `min-scale`, `window`."""
    found: dict[str, object] = {}
    inner = table(item, "spec", "template", "metadata", "annotations")
    for source in (annotations_of(item), inner):
        for key, value in source.items():
            group, slash, name = str(key).partition("/")
            if slash and group == "autoscaling.knative.dev":
                found[re.sub(r"(?<=[a-z])([A-Z])", r"-\1", name).lower()] = value
    return found


def _knative(item: KubeObject) -> Scaler:
    said = _knative_annotations(item)
    most = quantity(said.get("max-scale"))
    window = duration_s(said.get("window"))
    kept = duration_s(said.get("scale-to-zero-pod-retention-period"))
    metric, target = word(said.get("metric")), quantity(said.get("target"))
    settings: dict[str, Any] = {
        "autoscaler.kind": "knative",
        "hpa.max_replicas": most or None,  # 0 says that there is none
    }
    told = {
        "hpa.min_replicas": quantity(said.get("min-scale")),
        "hpa.target": target,
        "hpa.metric": metric_name(metric) if metric is not None else None,
        "knative.scale_to_zero_window_s": window + (kept or 0) if window is not None else None,
        "k8s.startup_deadline_s": _progress_deadline_s(item),
    }
    settings |= {name: value for name, value in told.items() if value is not None}
    defaults = {
        "hpa.min_replicas": 0,
        "hpa.metric": "concurrency",
        "knative.scale_to_zero_window_s": _KNATIVE_WINDOW_S + (kept or 0),
    }
    return Scaler(
        name=name_of(item),
        target=name_of(item),
        configured=facts_document(settings=settings),
        defaults=facts_document(settings=defaults),
        seen={},
    )


def _progress_deadline_s(item: KubeObject) -> float | None:
    """Within which a new revision must be ready, or else it is taken away."""
    inner = table(item, "spec", "template", "metadata", "annotations")
    for source in (inner, annotations_of(item)):
        found = duration_s(source.get("serving.knative.dev/progress-deadline"))
        if found is not None:
            return found
    return None
