"""Limits on shared cards: not applied, stalling a group, switching on and off; cards to share."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Opinion
from mileage.doctor.rules.sharing import RULES as LIMITS
from mileage.doctor.rules.sharing_advice import RULES as ADVICE

FINDING, CLEAR, OPEN = "finding", "clear", "not_enough_evidence"


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in (*LIMITS, *ADVICE) if each.id == rule)
    return check(Evidence(decode_facts(facts)))


def series(*values: Any) -> dict[str, Any]:
    return {"series": [{"value": value} for value in values]}


def vgpu(limit: float, **more: Any) -> dict[str, Any]:
    return {"vgpu.core_limit_ratio": limit} | {
        name.replace("__", "."): value for name, value in more.items()
    }


@pytest.mark.parametrize(
    ("rule", "settings", "signals", "outcome"),
    [
        pytest.param(
            "SHARE001",
            vgpu(0.25, vgpu__policy="default"),
            {"gpu_util_ratio": {"min": 0.9}},
            FINDING,
            id="a quarter granted, all used",
        ),
        pytest.param(
            "SHARE001", vgpu(0.25), {"sm_active_ratio": 0.8}, FINDING, id="seen by SM activity"
        ),
        pytest.param(
            "SHARE001",
            vgpu(0.25, k8s__pods_on_gpu=4),
            {"gpu_util_ratio": 0.98},
            CLEAR,
            id="four pods with a quarter each use all of it",
        ),
        pytest.param(
            "SHARE001", vgpu(1.0), {"gpu_util_ratio": 0.98}, CLEAR, id="a limit of the whole card"
        ),
        pytest.param(
            "SHARE001",
            vgpu(0.5, vgpu__policy="force"),
            {"gpu_util_ratio": series(1.0, 0.0, 1.0, 0.0)},
            CLEAR,
            id="on and off by turns is another matter",
        ),
        pytest.param(
            "SHARE001",
            vgpu(0.5),
            {"gpu_util_ratio": {"min": 0.3, "max": 0.9}},
            OPEN,
            id="bounds wider than what decides",
        ),
        pytest.param(
            "SHARE002",
            vgpu(0.5, tensor_parallel_size=2),
            {"replicas_ready": 0},
            FINDING,
            id="two ranks with half a card, and no replica gets ready",
        ),
        pytest.param(
            "SHARE002",
            vgpu(0.5, tensor_parallel_size=2),
            {"output_tokens_per_s": 0, "requests_running": 4},
            FINDING,
            id="requests run and no token comes",
        ),
        pytest.param(
            "SHARE002",
            vgpu(0.5, tensor_parallel_size=1),
            {"replicas_ready": 0},
            CLEAR,
            id="a single card has nobody to wait for",
        ),
        pytest.param(
            "SHARE002",
            vgpu(1.0, tensor_parallel_size=2),
            {"replicas_ready": 0},
            CLEAR,
            id="whole cards: another reason",
        ),
        pytest.param(
            "SHARE003",
            vgpu(0.4, vgpu__policy="force"),
            {"gpu_util_ratio": series({"min": 0.95}, {"max": 0.05})},
            FINDING,
            id="full, then nothing",
        ),
        pytest.param(
            "SHARE003",
            vgpu(0.4),
            {"gpu_util_ratio": series(0.9, 0.02, 0.95, 0.0, 0.9), "requests_running": 8},
            FINDING,
            id="in turns, the policy not known",
        ),
        pytest.param(
            "SHARE003",
            vgpu(0.4, vgpu__policy="force"),
            {"gpu_util_ratio": series(0.9, 0.02, 0.95, 0.0), "requests_running": 0},
            CLEAR,
            id="nothing runs: the off phase is idleness",
        ),
        pytest.param(
            "SHARE003",
            {"k8s.gpu_sharing": "none"},
            {"gpu_util_ratio": series(0.9, 0.02, 0.95, 0.0)},
            OPEN,
            id="in turns without a limit",
        ),
        pytest.param(
            "SHARE005",
            {"k8s.gpu_sharing": "time_slicing", "k8s.pods_on_gpu": 1},
            {"sm_active_ratio": 0.2, "gpu_util_ratio": 0.9},
            OPEN,
            id="one process takes turns with nobody",
        ),
    ],
)
def test_sharing(
    rule: str, settings: dict[str, Any], signals: dict[str, Any], outcome: str
) -> None:
    found = opinion(rule, {"settings": settings, "signals": signals}).outcome
    assert found == outcome if outcome == FINDING else found != FINDING


def test_a_collective_that_times_out_shows_the_stall() -> None:
    facts = {
        "settings": vgpu(0.5, tensor_parallel_size=2),
        "logs": ["[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)"],
    }
    assert opinion("SHARE002", facts).outcome == FINDING


def test_mps_that_was_faster_is_worth_a_warning() -> None:
    facts = {
        "comparisons": [
            {
                "arms": [
                    {
                        "arm": "now",
                        "settings": {"k8s.gpu_sharing": "time_slicing"},
                        "signals": {"throughput_rel": 1},
                        "current": True,
                    },
                    {
                        "arm": "tried",
                        "settings": {"k8s.gpu_sharing": "mps"},
                        "signals": {"throughput_rel": 1.6},
                    },
                ]
            }
        ]
    }
    found = opinion("SHARE005", facts)
    assert (found.outcome, found.severity) == (FINDING, "warning")


def test_a_small_model_on_a_large_card_is_only_worth_knowing() -> None:
    facts = {
        "model": {"params_b": 1, "dtype": "fp16"},
        "hardware": {"memory_gb": 80, "count": 1},
        "settings": {"k8s.gpu_sharing": "none"},
        "signals": {"sm_active_ratio": 0.1, "requests_running": 1},
    }
    found = opinion("SHARE004", facts)
    assert (found.outcome, found.severity) == (FINDING, "info")
    facts["signals"] = {"sm_active_ratio": 0.1, "requests_running": 0}
    assert opinion("SHARE004", facts).outcome != FINDING, "idle is not small"
