"""Autoscaling: the metric, its bound, its absence, too many, too late."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.doctor_answers import first_cause

SITUATIONS = [
    pytest.param(
        {
            "settings": {"hpa.metric": "DCGM_FI_DEV_GPU_UTIL"},
            "signals": {
                "gpu_util_ratio": {"series": [{"value": 0.99}, {"value": 0.99}, {"value": 0.98}]}
            },
        },
        "autoscale_on_gpu_util",
        id="the scaler follows the card's busy time, which is flat: GPU utilisation",
    ),
    pytest.param(
        {
            "settings": {"hpa.metric": "sm_active_ratio", "hpa.target": 0.7},
            "signals": {"sm_active_ratio": {"min": 0.9}},
        },
        "autoscale_on_gpu_util",
        id="the scaler follows SM activity: GPU utilisation",
    ),
    pytest.param(
        {"settings": {"hpa.metric": "requests_running", "hpa.target": 256, "max_num_seqs": 256}},
        "autoscale_metric_capped",
        id="a target at the engine's slots is within the tolerance: never reached",
    ),
    pytest.param(
        {"settings": {"hpa.metric": "kv_cache_usage_ratio", "hpa.target": 80}},
        "autoscale_metric_capped",
        id="a share with a target in per cent: never reached",
    ),
    pytest.param(
        {
            "settings": {
                "hpa.metric": "vllm:num_requests_running",
                "hpa.target": 50,
                "max_num_seqs": 16,
            },
            "signals": {
                "requests_waiting": {"series": [{"value": 0}, {"value": 10}, {"value": 40}]},
                "scale_up_events_count": 0,
            },
        },
        "autoscale_metric_capped",
        id="a target above the slots while requests wait: never reached",
    ),
    pytest.param(
        {
            "settings": {"hpa.metric": "requests_running", "hpa.target": 10},
            "signals": {
                "requests_running_max": 4,
                "requests_waiting": {"series": [{"value": 0}, {"value": 5}, {"value": 20}]},
                "scale_up_events_count": 0,
            },
        },
        "autoscale_metric_capped",
        id="the value that was seen stays below the target while the queue grows: never reached",
    ),
    pytest.param(
        {
            "settings": {
                "hpa.metric": "requests_running",
                "hpa.target": 100,
                "max_num_seqs": 256,
                "hpa.max_replicas": 8,
            },
            "signals": {
                "requests_running": 60,
                "requests_waiting": 0,
                "replicas_current": 2,
                "replicas_desired": 2,
                "scale_up_events_count": 3,
            },
        },
        None,
        id="a target well below the slots, replicas follow: nothing",
    ),
    pytest.param(
        {"signals": {"autoscaler_metric_errors_count": {"min": 1}}},
        "autoscaler_metric_fetch_fail",
        id="fetches of the metric fail: missing metric",
    ),
    pytest.param(
        {
            "logs": [
                "Warning  FailedGetPodsMetric  33s  horizontal-pod-autoscaler  unable to get "
                "metric x: no metrics returned from custom metrics API"
            ]
        },
        "autoscaler_metric_fetch_fail",
        id="the autoscaler's events say so: missing metric",
    ),
    pytest.param(
        {
            "hardware": {"schedulable_gpus": 4},
            "settings": {"hpa.max_replicas": 20},
            "signals": {"replicas_pending": 10, "replicas_ready": 4},
        },
        "autoscaler_overshoot",
        id="a maximum above what fits, pods pending: too many asked for",
    ),
    pytest.param(
        {
            "settings": {"hpa.max_replicas": None},
            "signals": {"replicas_desired": 100, "replicas_ready": 3, "replicas_pending": 97},
        },
        "autoscaler_overshoot",
        id="no maximum and most replicas pending: too many asked for",
    ),
    pytest.param(
        {
            "hardware": {"schedulable_gpus": 8},
            "settings": {"tensor_parallel_size": 4},
            "signals": {"replicas_desired": 5, "replicas_ready": 2},
        },
        "autoscaler_overshoot",
        id="five replicas of four GPUs each on eight GPUs: too many asked for",
    ),
    pytest.param(
        {
            "hardware": {"schedulable_gpus": 8},
            "settings": {"hpa.max_replicas": 8},
            "signals": {
                "replicas_desired": 4,
                "replicas_ready": 3,
                "replicas_pending": 1,
                "requests_waiting": 0,
                "requests_running": 10,
            },
        },
        None,
        id="one pod that starts is not too many",
    ),
    pytest.param(
        {
            "settings": {"hpa.scale_down_stabilization_s": 1800},
            "signals": {"scale_down_after_idle_s": 1830},
        },
        "autoscaler_scale_down_delay",
        id="the delay is the stabilisation window: too late",
    ),
    pytest.param(
        {
            "settings": {"autoscaler.kind": "knative", "knative.scale_to_zero_window_s": 600},
            "signals": {"scale_down_after_idle_s": {"min": 600, "max": 660}},
        },
        "autoscaler_scale_down_delay",
        id="the delay is Knative's window: too late",
    ),
    pytest.param(
        {
            "settings": {"keda.cooldown_s": 300},
            "signals": {
                "replicas_current": 5,
                "replicas_desired": 1,
                "requests_running": 0,
                "requests_waiting": 0,
            },
        },
        "autoscaler_scale_down_delay",
        id="more replicas than are asked for, and no load: too late",
    ),
    pytest.param(
        {
            "settings": {
                "autoscaler.kind": "keda",
                "keda.cooldown_s": None,
                "hpa.scale_down_stabilization_s": None,
            },
            "signals": {"scale_down_after_idle_s": 610},
        },
        "autoscaler_scale_down_delay",
        id="the delay is the sum of two defaults: too late",
    ),
    pytest.param(
        {
            "settings": {"autoscaler.kind": "keda", "keda.cooldown_s": 300},
            "signals": {"scale_down_after_idle_s": 310, "startup_total_s": 600},
        },
        None,
        id="a delay shorter than a start is well spent",
    ),
]


@pytest.mark.parametrize(("facts", "cause"), SITUATIONS)
def test_what_comes_first(facts: dict[str, Any], cause: str | None) -> None:
    assert first_cause(facts) == cause
