"""Whatever a manifest holds: facts that decode, or a ConfigError with the file and the document."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.core.errors import ConfigError
from mileage.doctor.collect.k8s_facts import manifest_facts
from mileage.doctor.collect.k8s_quantity import duration_s, quantity, time_s
from mileage.doctor.collect.merge_facts import merge_facts
from mileage.doctor.document import diagnose_document
from mileage.doctor.facts import decode_facts
from mileage.scrape.yaml_documents import yaml_documents, yaml_value

KINDS = (
    "Deployment",
    "StatefulSet",
    "Pod",
    "HorizontalPodAutoscaler",
    "ScaledObject",
    "Service",
    "InferenceService",
    "LeaderWorkerSet",
    "Event",
    "Node",
    "ConfigMap",
    "List",
)
KEYS = (
    *("metadata", "name", "labels", "annotations", "ownerReferences", "spec", "template", "status"),
    *("containers", "containerStatuses", "env", "args", "command", "image", "resources", "limits"),
    *("requests", "cpu", "nvidia.com/gpu", "nvidia.com/gpucores", "nvidia.com/mig-1g.10gb"),
    *("startupProbe", "livenessProbe", "failureThreshold", "periodSeconds", "scaleTargetRef"),
    *("minReplicas", "maxReplicas", "metrics", "type", "resource", "target", "averageValue"),
    *("behavior", "scaleDown", "policies", "selectPolicy", "triggers", "threshold", "query"),
    *("minReplicaCount", "idleReplicaCount", "cooldownPeriod", "advanced", "predictor", "model"),
    *("lastState", "terminated", "exitCode", "startedAt", "finishedAt", "restartCount", "phase"),
    *("conditions", "reason", "message", "involvedObject", "count", "allocatable", "capacity"),
    *("nvidia.com/gpu.replicas", "nvidia.com/gpu.product", "nvidia.com/gpu.count", "data"),
    *("config.yaml", "currentReplicas", "currentMetrics", "health", "securityContext"),
    *("privileged", "items", "kind", "autoscaling.knative.dev/window", "items", "value"),
)
WORDS = (
    *("500m", "2", "1Gi", "-5", "1e30", "vllm", "serve", "--tensor-parallel-size", "Running"),
    *("Pending", "True", "False", "Killing", "container x failed startup probe", "FailedGetPods"),
    *("2025-01-31T08:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "Percent", "Pods"),
    *("sharing:\n  timeSlicing:\n    resources: [{replicas: 4}]", "from 5 to 0", "NVIDIA-SHARED"),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from((*WORDS, *KINDS)),
    st.text(max_size=8),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
        st.dictionaries(st.one_of(scalars), inner, max_size=2),
    ),
    max_leaves=40,
)
objects = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(KINDS),
        "apiVersion": st.sampled_from(("v1", "apps/v1", "serving.knative.dev/v1")),
        "metadata": values,
        "spec": values,
        "status": values,
        "data": values,
    }
)


def check(documents: Any) -> None:
    parts = manifest_facts(documents, place="any", read_yaml=yaml_value)
    for part in parts:
        decode_facts(json.loads(json.dumps(part.document)))
    decode_facts(merge_facts(parts).document)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(objects, values), max_size=4))
def test_any_objects_are_facts_that_decode(documents: list[Any]) -> None:
    check(documents)


@settings(max_examples=100, deadline=None)
@given(st.lists(objects, max_size=3))
def test_a_diagnosis_of_any_objects_does_not_fail(documents: list[Any]) -> None:
    diagnose_document(
        merge_facts(manifest_facts(documents, place="any", read_yaml=yaml_value)).document
    )


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(), st.lists(objects, max_size=2).map(lambda d: yaml.safe_dump_all(d))))
def test_any_text_is_documents_or_an_error_that_names_one(text: str) -> None:
    place = "all.yaml, document 1"
    try:
        check(yaml_documents(text, place="all.yaml"))
    except ConfigError as error:
        place = error.place or "nowhere"
    assert place.startswith("all.yaml, document ")


@given(scalars)
def test_a_scalar_of_any_kind_is_a_number_or_none(value: object) -> None:
    for read in (quantity, duration_s, time_s):
        found = read(value)
        assert found is None or isinstance(found, int | float)
    with contextlib.suppress(OverflowError):
        float(quantity(value) or 0)
