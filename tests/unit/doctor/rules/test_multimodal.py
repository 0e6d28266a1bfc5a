"""Media in prompts: preparing them, and moving them."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Opinion
from mileage.doctor.rules.multimodal import RULES

IMAGE = {"workload": {"mm_input": "image"}}


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in RULES if each.id == rule)
    return check(Evidence(decode_facts(facts)))


def arms(*each: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"arms": [{"arm": str(n)} | arm for n, arm in enumerate(each)]}]


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            IMAGE | {"signals": {"frontend_process_cpu_ratio": 0.95, "gpu_util_ratio": 0.4}},
            "finding",
            id="full process, idle GPU",
        ),
        pytest.param(
            IMAGE | {"settings": {"mm_processor_workers": 1}, "signals": {"gpu_util_ratio": 0.4}},
            "finding",
            id="one worker, idle GPU",
        ),
        pytest.param(
            IMAGE | {"settings": {"mm_processor_workers": 1}, "signals": {"gpu_util_ratio": 0.95}},
            "not_enough_evidence",
            id="one worker is enough",
        ),
        pytest.param(
            {
                "workload": {"mm_input": "none"},
                "signals": {"frontend_process_cpu_ratio": 1.0, "gpu_util_ratio": 0.3},
            },
            "not_enough_evidence",
            id="no media, no preprocessing",
        ),
        pytest.param(
            {
                "model": {"architecture": ["vlm"]},
                "signals": {"frontend_process_cpu_ratio": 1.0, "gpu_util_ratio": 0.3},
            },
            "not_enough_evidence",
            id="a model that could take media, and text as far as is known",
        ),
        pytest.param(
            IMAGE | {"signals": {"mm_preprocess_s": 0.8, "ttft_p50_s": 1.1}},
            "finding",
            id="most of the time to first token",
        ),
        pytest.param(
            IMAGE
            | {
                "settings": {"mm_processor_workers": 4},
                "signals": {"mm_preprocess_s": 0.5, "requests_per_s": 7.5},
            },
            "finding",
            id="the workers have no time left",
        ),
        pytest.param(
            IMAGE
            | {
                "signals": {
                    "mm_preprocess_s": 0.3,
                    "mm_serialise_s": 0.5,
                    "mm_deserialise_s": 0.4,
                    "ttft_p50_s": 1.3,
                }
            },
            "not_enough_evidence",
            id="moving the pixels takes longer",
        ),
        pytest.param(
            IMAGE
            | {
                "comparisons": arms(
                    {"settings": {"mm_resize_library": "pil"}, "signals": {"requests_per_s": 9}},
                    {"settings": {"mm_resize_library": "cv"}, "signals": {"requests_per_s": 22}},
                )
            },
            "finding",
            id="another library is faster",
        ),
        pytest.param(
            IMAGE | {"signals": {"frontend_process_cpu_ratio": 1.0, "sm_active_ratio": 0.95}},
            "clear",
            id="the GPU is saturated",
        ),
    ],
)
def test_mm_preprocess_cpu_bound(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("MM001", facts).outcome == outcome


@pytest.mark.parametrize(
    ("signals", "outcome"),
    [
        pytest.param(
            {"mm_serialise_s": 0.6, "mm_deserialise_s": 0.5, "mm_preprocess_s": 0.9},
            "finding",
            id="both together exceed the preprocessing",
        ),
        pytest.param(
            {"mm_serialise_s": 1.0, "mm_preprocess_s": 0.9},
            "finding",
            id="one of the two is a lower bound of both",
        ),
        pytest.param(
            {"mm_serialise_s": 0.1, "mm_preprocess_s": 0.9},
            "not_enough_evidence",
            id="one of the two is small, the other not known",
        ),
        pytest.param(
            {"mm_serialise_s": 0.1, "mm_deserialise_s": 0.1, "mm_preprocess_s": 0.9},
            "clear",
            id="both are small",
        ),
        pytest.param(
            {"mm_serialise_s": 0.3, "mm_deserialise_s": 0.3, "ttft_mean_s": 1.2},
            "finding",
            id="half of the time to first token",
        ),
    ],
)
def test_mm_ipc_serialisation(signals: dict[str, Any], outcome: str) -> None:
    assert opinion("MM002", IMAGE | {"signals": signals}).outcome == outcome
