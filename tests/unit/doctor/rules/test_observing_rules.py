"""Probes that cost what they look at, and identical requests that nobody merges."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.rules.merging import RULES as MERGING
from mileage.doctor.rules.observing import RULES as OBSERVING

PROBES = ['10.0.0.9 - "GET /health HTTP/1.1" 200 OK'] * 30
WORK = ['10.0.0.9 - "POST /v1/completions HTTP/1.1" 200 OK'] * 30
LATE = "Readiness probe failed: Get http://:8000/health: context deadline exceeded"
GATEWAY = {"proxies": ["gateway"]}


def outcome(rule: str, facts: dict[str, Any]) -> str:
    (check,) = (each.check for each in (*MERGING, *OBSERVING) if each.id == rule)
    return check(Evidence(decode_facts(facts))).outcome


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(
            {"logs": PROBES, "signals": {"frontend_process_cpu_ratio": 0.97}},
            "finding",
            id="nothing but probes, and a full core",
        ),
        pytest.param({"logs": [*PROBES, LATE]}, "finding", id="probes that are answered too late"),
        pytest.param(
            {"logs": PROBES, "signals": {"frontend_process_cpu_ratio": 0.1}},
            "clear",
            id="a core that has time for them",
        ),
        pytest.param({"logs": PROBES}, "not_enough_evidence", id="no loss is shown"),
        pytest.param(
            {"logs": WORK, "signals": {"frontend_process_cpu_ratio": 0.97}},
            "not_enough_evidence",
            id="a core that is full of work",
        ),
        pytest.param(
            {
                "comparisons": [
                    {
                        "arms": [
                            {
                                "arm": "often",
                                "settings": {"keda.polling_s": 0.5},
                                "signals": {"output_tokens_per_s": 900},
                            },
                            {
                                "arm": "seldom",
                                "settings": {"keda.polling_s": 15},
                                "signals": {"output_tokens_per_s": 1100},
                            },
                        ]
                    }
                ]
            },
            "finding",
            id="a longer interval yields more",
        ),
    ],
)
def test_probes_come_too_often(facts: dict[str, Any], expected: str) -> None:
    assert outcome("OBS001", facts) == expected


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        pytest.param({"kind": "online", "shared_prefix_ratio": 1.0}, "finding", id="identical"),
        pytest.param(
            {"kind": "online", "first_diff_token": 800, "isl_tokens": 800},
            "finding",
            id="no difference before the end",
        ),
        pytest.param({"kind": "online", "shared_prefix_ratio": 0.8}, "clear", id="a common head"),
        pytest.param({"kind": "benchmark", "shared_prefix_ratio": 1.0}, "clear", id="by intent"),
        pytest.param(
            {"kind": "online", "shared_prefix_ratio": 1.0, "n": 4}, "clear", id="samples wanted"
        ),
        pytest.param({"kind": "online"}, "not_enough_evidence", id="not told"),
    ],
)
def test_identical_requests(workload: dict[str, Any], expected: str) -> None:
    facts = {"topology": GATEWAY, "workload": workload, "signals": {"requests_running": 9}}
    assert outcome("MRG001", facts) == expected
