"""Batches that are not refilled, prompts that block, models that run alone."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Opinion
from mileage.doctor.rules.batching_advice import RULES

FINDING, CLEAR, OPEN = "finding", "clear", "not_enough_evidence"


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in RULES if each.id == rule)
    return check(Evidence(decode_facts(facts)))


def series(*values: float) -> dict[str, Any]:
    return {"series": [{"value": value} for value in values]}


DRAINING = series(16, 11, 5, 2, 16, 12, 3)
LONG = {"kind": "online", "isl_tokens": 9000}
TAIL = {"itl_p50_s": 0.03, "itl_p99_s": 1.5}


@pytest.mark.parametrize(
    ("rule", "facts", "outcome"),
    [
        pytest.param(
            "BATADV001",
            {
                "signals": {
                    "requests_running": DRAINING,
                    "requests_waiting": 30,
                    "kv_cache_usage_ratio": 0.2,
                }
            },
            FINDING,
            id="drains while others wait, then is full again",
        ),
        pytest.param(
            "BATADV001",
            {
                "signals": {
                    "requests_running": DRAINING,
                    "requests_waiting": 30,
                    "kv_cache_usage_ratio": 0.98,
                    "preemptions_per_s": 2,
                }
            },
            CLEAR,
            id="drains because requests are preempted",
        ),
        pytest.param(
            "BATADV001",
            {"signals": {"requests_running": DRAINING, "requests_waiting": 0}},
            CLEAR,
            id="drains because nobody waits",
        ),
        pytest.param(
            "BATADV001",
            {"logs": ["[TensorRT-LLM][INFO] batching_type: V1"]},
            FINDING,
            id="the engine says so",
        ),
        pytest.param(
            "BATADV002",
            {"settings": {"enable_chunked_prefill": False}, "workload": LONG, "signals": TAIL},
            FINDING,
            id="long prompts in one piece, and streams stand still",
        ),
        pytest.param(
            "BATADV002",
            {
                "settings": {"enable_chunked_prefill": False},
                "workload": LONG | {"isl_tokens": 200},
                "signals": TAIL,
            },
            OPEN,
            id="short prompts block nobody",
        ),
        pytest.param(
            "BATADV002",
            {
                "settings": {"enable_chunked_prefill": False},
                "workload": LONG | {"kind": "offline"},
                "signals": TAIL,
            },
            CLEAR,
            id="a job has no readers",
        ),
        pytest.param(
            "BATADV003",
            {
                "engine": {"name": "triton"},
                "signals": {
                    "triton_exec_infer_count": 500,
                    "requests_completed_count": 500,
                    "requests_waiting": 8,
                },
            },
            FINDING,
            id="one execution for each request, and a queue",
        ),
        pytest.param(
            "BATADV003",
            {
                "engine": {"name": "triton"},
                "signals": {
                    "triton_exec_infer_count": 50000,
                    "requests_completed_count": 500,
                    "requests_waiting": 8,
                },
            },
            CLEAR,
            id="one execution a step: it batches in flight",
        ),
        pytest.param(
            "BATADV003",
            {"engine": {"name": "vllm"}, "signals": {"requests_waiting": 8}},
            CLEAR,
            id="another engine",
        ),
    ],
)
def test_unfilled(rule: str, facts: dict[str, Any], outcome: str) -> None:
    assert opinion(rule, facts).outcome == outcome


def test_an_ab_of_chunks_shows_the_longer_tail() -> None:
    arms = [
        {
            "arm": "off",
            "settings": {"enable_chunked_prefill": False},
            "signals": {"itl_p99_s": 0.8},
        },
        {"arm": "on", "settings": {"enable_chunked_prefill": True}, "signals": {"itl_p99_s": 0.09}},
    ]
    facts = {"comparisons": [{"arms": arms}]}
    assert opinion("BATADV002", facts).outcome == FINDING
    arms[0]["signals"] = {"itl_p99_s": 0.085}
    assert opinion("BATADV002", facts).outcome != FINDING
