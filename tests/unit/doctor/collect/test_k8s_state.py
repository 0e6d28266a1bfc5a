"""Pods, events and nodes of a cluster as facts: what happened, and what there is."""

from __future__ import annotations

import json
from typing import Any

from mileage.doctor.collect.k8s_facts import manifest_facts
from mileage.doctor.collect.merge_facts import merge_facts
from mileage.scrape.yaml_documents import yaml_documents, yaml_value

ENGINE = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec: {template: {spec: {containers: [{image: x, args: [vllm, serve, org/model]}]}}}
"""


def event(about: str, reason: str, message: str, **more: Any) -> str:
    """An event as a document of its own; `about` is KIND/NAME."""
    kind, _, name = about.partition("/")
    told = {"reason": reason, "message": message, **more}
    whole = {"kind": "Event", "involvedObject": {"kind": kind, "name": name}, **told}
    return "\n---\n" + json.dumps(whole)


def facts(text: str, focus: str | None = None) -> dict[str, Any]:
    documents = yaml_documents(text, place="test")
    return merge_facts(
        manifest_facts(documents, place="test", read_yaml=yaml_value, focus=focus)
    ).document


NODES = """
apiVersion: v1
kind: List
items:
- kind: Node
  metadata:
    name: n1
    labels:
      nvidia.com/gpu.product: NVIDIA-L4-SHARED
      nvidia.com/gpu.replicas: "4"
      nvidia.com/gpu.count: "1"
      nvidia.com/gpu.memory: "23034"
      nvidia.com/gpu.sharing-strategy: time-slicing
  status: {allocatable: {nvidia.com/gpu: "4", cpu: "15"}, capacity: {cpu: "16"}}
- kind: Node
  metadata: {name: n2}
  spec: {unschedulable: true}
  status: {allocatable: {nvidia.com/gpu: "8"}}
- kind: Node
  metadata: {name: n3}
  status: {allocatable: {cpu: "4"}}
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata: {name: chat-%s}
spec: {nodeName: n1, containers: [{image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}
status: {phase: Running}
"""


def test_nodes_tell_what_can_be_given_and_how_cards_are_shared() -> None:
    found = facts(NODES + POD % "a" + POD % "b")
    assert found["hardware"] == {
        "schedulable_gpus": 4,
        "gpu": "NVIDIA-L4",
        "memory_gb": 24.2,
        "cpus": 16,
    }
    assert found["settings"]["k8s.gpu_sharing"] == "time_slicing"
    assert found["settings"]["k8s.gpu_replicas_label"] == 4
    assert found["settings"]["k8s.pods_on_gpu"] == 2


def test_where_nodes_are_added_what_is_there_is_the_least() -> None:
    grows = NODES + "\n---\n{kind: NodePool, apiVersion: karpenter.sh/v1, metadata: {name: gpus}}"
    assert facts(grows)["hardware"]["schedulable_gpus"] == {"min": 4}


STARTING = """
---
apiVersion: v1
kind: Pod
metadata:
  name: chat-7d-x
  creationTimestamp: "2025-01-31T08:00:00Z"
  ownerReferences: [{kind: ReplicaSet, name: chat-7d}]
spec: {containers: [{image: x}]}
status:
  phase: Running
  conditions:
  - {type: PodScheduled, status: "True", lastTransitionTime: "2025-01-31T08:03:20Z"}
  - {type: Ready, status: "False"}
  containerStatuses:
  - restartCount: 5
    ready: false
    lastState:
      terminated:
        exitCode: 137
        reason: Error
        startedAt: "2025-01-31T08:10:00Z"
        finishedAt: "2025-01-31T08:20:31Z"
"""


def test_pods_that_a_probe_ends_tell_their_age_and_their_number() -> None:
    text = ENGINE + STARTING
    said = "Container engine failed startup probe, will be restarted"
    text += event("Pod/chat-7d-x", "Killing", said, count=5)
    text += event("Pod/chat-7d-x", "TriggeredScaleUp", "pod triggered scale-up")
    text += event("Pod/other-1", "Unhealthy", "of another workload", type="Warning")
    found = facts(text)
    signals = found["signals"]
    assert signals["pod_kill_before_ready_count"] == 5
    assert signals["pod_age_at_kill_s"] == 631
    assert signals["process_restarts_count"] == 5
    assert signals["node_provision_s"] == 200
    assert (signals["replicas_ready"], signals["replicas_pending"]) == (0, 0)
    assert not any("another" in line for line in found["logs"])


def test_events_of_scalers_are_counted_and_pods_without_a_place_are_pending() -> None:
    keda, hpa = "ScaledObject/chat", "HorizontalPodAutoscaler/keda-hpa-chat"
    text = (
        ENGINE
        + """
---
kind: ScaledObject
metadata: {name: chat}
spec: {scaleTargetRef: {name: chat}}
"""
    )
    text += event(keda, "KEDAScalerFailed", "no such host", series={"count": 9})
    text += event(hpa, "FailedGetExternalMetric", "unable to fetch", count=3)
    up = "New size: 4; reason: external metric above target"
    text += event(hpa, "SuccessfulRescale", up)
    down = "Deactivated apps/v1.Deployment default/chat from 4 to 0"
    text += event(keda, "KEDAScaleTargetDeactivated", down)
    text += event("Pod/chat-7d-y", "FailedScheduling", "Insufficient nvidia.com/gpu")
    found = facts(text)
    signals = found["signals"]
    assert signals["autoscaler_metric_errors_count"] == 12
    assert signals["scale_up_events_count"] == 1
    assert signals["scale_to_zero_events_count"] == 1
    assert signals["replicas_current"] == {"series": [{"value": 4}, {"value": 0}]}
    assert signals["replicas_pending"] == {"min": 1}
