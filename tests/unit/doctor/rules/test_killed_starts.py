"""Pods that are removed while they start: by a deadline, or by a scaler that sees no traffic."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rules.startup_killed import RULES
from mileage.doctor.run import diagnose

DEADLINE, TO_ZERO = "START005", "START006"


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in RULES if each.id == rule)
    return check(Evidence(decode_facts(facts)))


def pods(settings: dict[str, Any], **signals: Any) -> dict[str, Any]:
    return {"settings": settings, "signals": signals}


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            pods({"k8s.startup_deadline_s": 200}, pod_age_at_kill_s=205),
            "finding",
            id="pods go when the deadline has passed",
        ),
        pytest.param(
            pods({"k8s.startup_deadline_s": 200}, pod_age_at_kill_s=60),
            "not_enough_evidence",
            id="pods go long before it",
        ),
        pytest.param(
            pods({}, pod_age_at_kill_s=600, pod_kill_before_ready_count=2),
            "finding",
            id="pods go at the age of a known default",
        ),
        pytest.param(
            pods({}, pod_age_at_kill_s=[432, 433, 431], replicas_ready=0),
            "finding",
            id="all go at the same age",
        ),
        pytest.param(
            pods({}, pod_age_at_kill_s=[90, 433, 231], replicas_ready=0),
            "not_enough_evidence",
            id="they go at any age",
        ),
        pytest.param(
            pods({"k8s.startup_deadline_s": 300}, startup_total_s={"min": 400}),
            "finding",
            id="the start is longer than the deadline",
        ),
        pytest.param(
            pods({"k8s.startup_deadline_s": 300}, startup_weights_s=350),
            "finding",
            id="one phase is longer than the deadline",
        ),
        pytest.param(
            pods({"k8s.startup_deadline_s": 300}, startup_total_s=200),
            "clear",
            id="the start is within the deadline",
        ),
        pytest.param(
            pods({"k8s.startup_deadline_s": 300}, startup_total_s={"min": 200}),
            "not_enough_evidence",
            id="a bound that may be longer",
        ),
        pytest.param(
            pods({"k8s.startup_deadline_s": 300}, pod_kill_before_ready_count=0),
            "clear",
            id="no pod goes before it is ready",
        ),
        pytest.param(
            {
                "signals": {"process_restarts_count": 3},
                "logs": ["Warning Unhealthy: Startup probe failed: connection refused"],
            },
            "finding",
            id="the probe fails and the container restarts",
        ),
        pytest.param(
            {"logs": ["Warning Unhealthy: Startup probe failed: connection refused"]},
            "not_enough_evidence",
            id="a probe that fails at first is usual",
        ),
        pytest.param(
            pods({}, pod_age_at_kill_s=70, pod_kill_before_ready_count=2, oom_count=2),
            "not_enough_evidence",
            id="they run out of memory",
        ),
        pytest.param(
            pods({"keda.min_replicas": 0}, pod_age_at_kill_s=77, pod_kill_before_ready_count=2),
            "not_enough_evidence",
            id="a scaler that goes to zero is likelier",
        ),
    ],
)
def test_deadline(facts: dict[str, Any], outcome: str) -> None:
    assert opinion(DEADLINE, facts).outcome == outcome


def test_the_advised_deadline_is_twice_the_start_in_whole_minutes() -> None:
    found = opinion(DEADLINE, pods({"k8s.startup_deadline_s": 300}, startup_total_s=400))
    assert found.changes == (Change("k8s.startup_deadline_s", 840.0),)
    assert found.severity == "critical"


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            pods(
                {"keda.min_replicas": 0, "keda.cooldown_s": 60},
                pod_kill_before_ready_count=1,
                startup_total_s=200,
            ),
            "finding",
            id="the start is longer than the cooldown",
        ),
        pytest.param(
            pods(
                {"hpa.min_replicas": 0, "knative.scale_to_zero_window_s": 90},
                pod_kill_before_ready_count=1,
                node_provision_s={"min": 90},
            ),
            "finding",
            id="the machine alone takes the window",
        ),
        pytest.param(
            pods(
                {"knative.scale_to_zero_window_s": 90},
                pod_kill_before_ready_count=1,
                pod_age_at_kill_s=93,
            ),
            "finding",
            id="pods go at the age of the window",
        ),
        pytest.param(
            pods({"hpa.min_replicas": 0}, pod_kill_before_ready_count=4),
            "finding",
            id="the minimum is zero and pods go before they are ready",
        ),
        pytest.param(
            pods(
                {"keda.min_replicas": 0, "keda.cooldown_s": 60},
                scale_to_zero_events_count=5,
                replicas_ready=0,
                startup_total_s=200,
            ),
            "finding",
            id="to zero again and again, and never ready",
        ),
        pytest.param(
            pods(
                {"keda.min_replicas": 1, "keda.cooldown_s": 60},
                pod_kill_before_ready_count=1,
                startup_total_s=200,
            ),
            "clear",
            id="one replica is always kept",
        ),
        pytest.param(
            pods(
                {"keda.min_replicas": 2, "keda.idle_replicas": 0, "keda.cooldown_s": 60},
                pod_kill_before_ready_count=1,
                startup_total_s=200,
            ),
            "finding",
            id="none is kept in idle times, whatever the minimum",
        ),
        pytest.param(
            pods(
                {"keda.idle_replicas": 1, "autoscaler.kind": "keda"},
                pod_kill_before_ready_count=9,
            ),
            "clear",
            id="one is kept in idle times",
        ),
        pytest.param(
            pods({"keda.min_replicas": 0}, pod_kill_before_ready_count=0, startup_total_s=200),
            "clear",
            id="no pod goes before it is ready",
        ),
        pytest.param(
            pods({"keda.min_replicas": 0, "keda.cooldown_s": 60}, startup_total_s=200),
            "not_enough_evidence",
            id="whether pods go is not known",
        ),
        pytest.param(
            pods({}, pod_kill_before_ready_count=3),
            "not_enough_evidence",
            id="nothing is known of the scaler",
        ),
    ],
)
def test_to_zero(facts: dict[str, Any], outcome: str) -> None:
    assert opinion(TO_ZERO, facts).outcome == outcome


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        pytest.param(
            {"hpa.min_replicas": 1, "k8s.startup_deadline_s": 300},
            "startup_deadline",
            id="a deadline with a replica kept",
        ),
        pytest.param(
            {"hpa.min_replicas": 0, "knative.scale_to_zero_window_s": 300},
            "scale_to_zero_kills_starting_pod",
            id="a window with none kept",
        ),
    ],
)
def test_the_same_pods_under_a_deadline_and_under_a_scaler(
    settings: dict[str, Any], cause: str
) -> None:
    facts = pods(settings, pod_age_at_kill_s=302, pod_kill_before_ready_count=3)
    assert diagnose(decode_facts(facts)).findings[0].cause == cause
