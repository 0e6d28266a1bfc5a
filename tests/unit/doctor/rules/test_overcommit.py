"""Admission that overcommits the KV cache; and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Opinion
from mileage.doctor.rules.batching import RULES

FINDING, CLEAR, OPEN = "finding", "clear", "not_enough_evidence"


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in RULES if each.id == rule)
    return check(Evidence(decode_facts(facts)))


def arms(*each: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"arms": [{"arm": str(n)} | arm for n, arm in enumerate(each)]}]


LOOSE = {"scheduler.policy": "max_utilization"}


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {"settings": LOOSE, "signals": {"preemptions_count": {"min": 1}}},
            FINDING,
            id="nothing is reserved, and requests are paused",
        ),
        pytest.param(
            {
                "settings": {"scheduler.admission": "per_chunk"},
                "signals": {"itl_p50_s": 0.03, "itl_p99_s": 2.2},
            },
            FINDING,
            id="admitted by the first chunk, and streams stand still",
        ),
        pytest.param(
            {
                "settings": LOOSE,
                "comparisons": arms(
                    {"workload": {"isl_tokens": 2000}, "signals": {"throughput_rel": 1}},
                    {"workload": {"isl_tokens": 16000}, "signals": {"throughput_rel": 0.2}},
                ),
            },
            FINDING,
            id="a collapse with longer prompts",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    {"settings": LOOSE, "signals": {"output_tokens_per_s": 300}},
                    {
                        "settings": {"scheduler.policy": "guaranteed_no_evict"},
                        "signals": {"output_tokens_per_s": 420},
                    },
                )
            },
            FINDING,
            id="the policy that reserves is faster",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    {"settings": LOOSE, "signals": {"output_tokens_per_s": 300}},
                    {
                        "settings": {"scheduler.policy": "guaranteed_no_evict"},
                        "signals": {"output_tokens_per_s": 420},
                        "current": True,
                    },
                )
            },
            CLEAR,
            id="already changed to the policy that reserves",
        ),
        pytest.param(
            {"settings": LOOSE, "signals": {"preemptions_count": 0, "kv_cache_usage_ratio": 0.97}},
            OPEN,
            id="nothing is reserved and nothing was paused",
        ),
        pytest.param(
            {"signals": {"preemptions_per_s": 1.0}}, OPEN, id="preemptions, the policy not known"
        ),
        pytest.param(
            {
                "settings": LOOSE,
                "comparisons": arms(
                    {"workload": {"concurrency": 16}, "signals": {"itl_p99_s": 0.06}},
                    {"workload": {"concurrency": 24}, "signals": {"itl_p99_s": 1.9}},
                ),
            },
            FINDING,
            id="half as many more, and a tail thirty times as long",
        ),
        pytest.param(
            {
                "settings": LOOSE,
                "comparisons": arms(
                    {"workload": {"concurrency": 16}, "signals": {"itl_p99_s": 0.06}},
                    {"workload": {"concurrency": 32}, "signals": {"itl_p99_s": 0.11}},
                ),
            },
            OPEN,
            id="twice as many, and a tail twice as long",
        ),
        pytest.param(
            {"settings": LOOSE, "logs": ["Retract requests. #retracted_reqs: 2"]},
            FINDING,
            id="the log counts those that were put aside",
        ),
    ],
)
def test_overcommit(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("BAT003", facts).outcome == outcome
