"""Kubernetes objects of every kind as facts of one deployment."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.collect.k8s_facts import manifest_facts
from mileage.doctor.collect.merge_facts import merge_facts
from mileage.scrape.yaml_documents import yaml_documents, yaml_value

ENGINE = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  replicas: 2
  progressDeadlineSeconds: 1200
  template:
    spec:
      containers:
      - name: sidecar
        image: envoyproxy/envoy:v1.30
      - name: engine
        image: vllm/vllm-openai:v0.9.2
        args: [--model, org/model, --tensor-parallel-size, "2", --max-num-seqs=64]
        env:
        - {name: OMP_NUM_THREADS, value: "4"}
        - {name: NCCL_IB_DISABLE, value: "1"}
        - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: hf, key: token}}}
        resources:
          requests: {cpu: 1500m}
          limits: {cpu: "4", nvidia.com/gpu: 2}
        startupProbe: {failureThreshold: 60, periodSeconds: 10, initialDelaySeconds: 30}
        livenessProbe: {periodSeconds: 5}
"""


def facts(text: str, focus: str | None = None) -> dict[str, Any]:
    documents = yaml_documents(text, place="test")
    return merge_facts(
        manifest_facts(documents, place="test", read_yaml=yaml_value, focus=focus)
    ).document


def test_a_deployment_tells_how_its_engine_is_started_and_what_it_may_use() -> None:
    found = facts(ENGINE)
    assert found["engine"] == {"name": "vllm", "version": "0.9.2"}
    assert found["topology"] == {"orchestrator": "kubernetes", "replicas": 2}
    wanted = {
        "tensor_parallel_size": 2,
        "max_num_seqs": 64,
        "env.OMP_NUM_THREADS": 4,
        "nccl.net_transport": "socket",
        "k8s.cpu_request": 1.5,
        "k8s.cpu_limit": 4,
        "k8s.gpu_request": 2,
        "k8s.startup_deadline_s": 630,
        "k8s.privileged": False,
    }
    assert {name: found["settings"].get(name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("probe", "deadline_s"),
    [
        pytest.param(
            "livenessProbe: {initialDelaySeconds: 60}", 90, id="three failures, 10 s apart"
        ),
        pytest.param("readinessProbe: {periodSeconds: 1}", 1200, id="it ends nothing"),
        pytest.param("startupProbe: {failureThreshold: x}", 1200, id="no number"),
    ],
)
def test_the_deadline_is_the_probes_else_the_deployments(probe: str, deadline_s: float) -> None:
    text = ENGINE.partition("        startupProbe")[0] + f"        {probe}\n"
    assert facts(text)["settings"]["k8s.startup_deadline_s"] == deadline_s


def test_an_hpa_of_the_engine_counts_and_not_that_of_its_proxy() -> None:
    scaler = """
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: %(name)s}
spec:
  scaleTargetRef: {kind: Deployment, name: %(name)s}
  maxReplicas: %(most)s
  metrics:
  - type: Pods
    pods:
      metric: {name: %(metric)s}
      target: {type: AverageValue, averageValue: 5500m}
  behavior:
    scaleDown:
      stabilizationWindowSeconds: 600
      policies: [{type: Pods, value: 1, periodSeconds: 60}]
status:
  currentReplicas: 3
  desiredReplicas: 5
  conditions: [{type: ScalingActive, status: "False", reason: FailedGetPodsMetric}]
"""
    proxy = "\n---\n" + ENGINE.replace("chat", "proxy").replace("vllm", "nginx").replace(
        "nvidia.com/gpu: 2", ""
    )
    text = ENGINE + proxy + scaler % {"name": "proxy", "most": 50, "metric": "cpu"}
    text += scaler % {"name": "chat", "most": 8, "metric": "vllm_num_requests_running"}
    found = facts(text)
    wanted = {
        "autoscaler.kind": "hpa",
        "hpa.metric": "requests_running",
        "hpa.target": 5.5,
        "hpa.min_replicas": 1,
        "hpa.max_replicas": 8,
        "hpa.scale_down_stabilization_s": 600,
        "hpa.scale_down_policy": "gradual",
    }
    assert {name: found["settings"].get(name) for name in wanted} == wanted
    assert found["signals"]["autoscaler_metric_errors_count"] == {"min": 1}
    assert (found["signals"]["replicas_current"], found["signals"]["replicas_desired"]) == (3, 5)


def test_the_first_version_of_the_hpa_knows_cpu_alone() -> None:
    found = facts(
        """
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata: {name: a}
spec:
  scaleTargetRef: {name: a}
  minReplicas: 2
  maxReplicas: 4
  targetCPUUtilizationPercentage: 70
"""
    )
    assert (found["settings"]["hpa.metric"], found["settings"]["hpa.target"]) == ("cpu", 70)
    assert found["settings"]["hpa.scale_down_policy"] == "immediate"


def test_keda_tells_its_counts_and_its_defaults_where_it_says_nothing() -> None:
    found = facts(
        """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: a}
spec:
  scaleTargetRef: {name: a}
  idleReplicaCount: 1
  triggers:
  - {type: prometheus, metadata: {query: 'avg(DCGM_FI_DEV_GPU_UTIL)', threshold: "80"}}
status: {health: {s0-prometheus: {numberOfFailures: 7, status: Failing}}}
"""
    )
    settings = found["settings"]
    assert (settings["keda.idle_replicas"], settings["keda.min_replicas"]) == (1, 0)
    assert (settings["keda.cooldown_s"], settings["keda.polling_s"]) == (300, 30)
    assert (settings["hpa.metric"], settings["hpa.target"]) == ("gpu_util_ratio", 80)
    assert settings["hpa.max_replicas"] == 100
    assert found["signals"]["autoscaler_metric_errors_count"] == 7


def test_knative_annotations_in_either_spelling() -> None:
    found = facts(
        """
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: a, annotations: {serving.knative.dev/progress-deadline: 30m}}
spec:
  template:
    metadata:
      annotations:
        autoscaling.knative.dev/minScale: "0"
        autoscaling.knative.dev/window: 2m
        autoscaling.knative.dev/scale-to-zero-pod-retention-period: 1m30s
        autoscaling.knative.dev/target: "10"
    spec: {containers: [{image: x, args: [vllm, serve, org/model]}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config-autoscaler}
data: {stable-window: 300s}
"""
    )
    settings = found["settings"]
    assert settings["knative.scale_to_zero_window_s"] == 210
    assert (settings["hpa.min_replicas"], settings["hpa.max_replicas"]) == (0, None)
    assert settings["k8s.startup_deadline_s"] == 1800
    assert (settings["hpa.metric"], settings["hpa.target"]) == ("concurrency", 10)


def test_a_kserve_predictor_and_a_group_of_leader_and_workers_hold_containers_too() -> None:
    kserve = facts(
        """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: a}
spec:
  predictor:
    model:
      modelFormat: {name: huggingface}
      resources: {limits: {nvidia.com/gpu: "1"}}
"""
    )
    assert kserve["settings"]["k8s.gpu_request"] == 1
    group = facts(
        """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: a}
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
        - command: [sh, -c, "vllm serve m -tp 8 --pipeline-parallel-size 2"]
          resources: {limits: {nvidia.com/gpu: 8}}
    workerTemplate:
      spec:
        containers: [{image: x, resources: {limits: {nvidia.com/gpu: 8}}}]
"""
    )
    assert group["settings"]["pipeline_parallel_size"] == 2
    assert group["engine"]["name"] == "vllm"


@pytest.mark.parametrize(
    ("resources", "settings"),
    [
        pytest.param(
            "{nvidia.com/gpu: 1, nvidia.com/gpucores: 30, nvidia.com/gpumem: 8000}",
            {
                "k8s.gpu_request": 1,
                "k8s.gpu_sharing": "hami",
                "vgpu.core_limit_ratio": 0.3,
                "vgpu.policy": "default",
            },
            id="a share of the SM time by HAMi",
        ),
        pytest.param(
            "{nvidia.com/mig-1g.10gb: 1}",
            {"k8s.gpu_request": 1, "k8s.gpu_sharing": "mig"},
            id="a slice",
        ),
        pytest.param(
            "{nvidia.com/gpu.shared: 1}",
            {"k8s.gpu_request": 1, "k8s.gpu_sharing": "time_slicing"},
            id="a copy",
        ),
    ],
)
def test_shares_of_a_card(resources: str, settings: dict[str, Any]) -> None:
    found = facts(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
        f"spec: {{containers: [{{image: x, resources: {{limits: {resources}}}}}]}}"
    )
    assert {name: found["settings"].get(name) for name in settings} == settings


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        pytest.param(
            "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 10}]}}",
            {"k8s.gpu_sharing": "time_slicing", "k8s.gpu_replicas_label": 10},
            id="time slicing",
        ),
        pytest.param(
            "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}",
            {"k8s.gpu_sharing": "mps", "k8s.gpu_replicas_label": 2},
            id="MPS",
        ),
        pytest.param("flags: {migStrategy: mixed}", {"k8s.gpu_sharing": "mig"}, id="MIG"),
    ],
)
def test_the_device_plugins_configuration(config: str, settings: dict[str, Any]) -> None:
    text = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plugin}\n"
        f"data:\n  any: |\n    version: v1\n    {config}\n"
    )
    assert facts(text)["settings"] == settings


def test_two_engines_keep_what_they_agree_on_and_a_name_chooses_one() -> None:
    other = ENGINE.replace("chat", "code").replace('"2"', '"4"')
    both = ENGINE + "\n---\n" + other
    assert "tensor_parallel_size" not in facts(both)["settings"]
    assert facts(both)["settings"]["max_num_seqs"] == 64
    assert facts(both, focus="code")["settings"]["tensor_parallel_size"] == 4


def test_nothing_of_use_is_no_facts() -> None:
    assert facts("") == {}
    assert facts("just a text") == {}
    assert facts("[1, 2, [3]]") == {}
