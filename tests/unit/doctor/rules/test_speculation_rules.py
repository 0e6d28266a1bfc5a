"""Speculation that pays, that does not, and of which nothing can be said."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Opinion
from mileage.doctor.rules.speculation import RULES

FINDING, CLEAR, OPEN = "finding", "clear", "not_enough_evidence"

OFF = {"speculative.method": None}
ON = {"speculative.method": "ngram", "speculative.num_tokens": 4}


def opinion(facts: dict[str, Any]) -> Opinion:
    (rule,) = RULES
    return rule.check(Evidence(decode_facts(facts)))


def arms(*each: dict[str, Any]) -> dict[str, Any]:
    return {"arms": [{"arm": str(n)} | arm for n, arm in enumerate(each)]}


def on_and_off(off: float, on: float, concurrency: float = 8) -> dict[str, Any]:
    load = {"concurrency": concurrency}
    return arms(
        {"settings": OFF, "workload": load, "signals": {"output_tokens_per_s": off}},
        {"settings": ON, "workload": load, "signals": {"output_tokens_per_s": on}},
    )


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param({"comparisons": [on_and_off(100, 80)]}, FINDING, id="slower with it"),
        pytest.param({"comparisons": [on_and_off(100, 101)]}, FINDING, id="as fast with it"),
        pytest.param({"comparisons": [on_and_off(100, 160)]}, CLEAR, id="faster with it"),
        pytest.param(
            {"comparisons": [on_and_off(100, 150, 1), on_and_off(2000, 1500, 64)]},
            FINDING,
            id="pays alone and not in a batch",
        ),
        pytest.param(
            {
                "workload": {"concurrency": 1},
                "comparisons": [on_and_off(100, 150, 1), on_and_off(2000, 1500, 64)],
            },
            CLEAR,
            id="pays alone, and this deployment serves one",
        ),
        pytest.param(
            {
                "comparisons": [
                    arms(
                        {"settings": OFF, "signals": {"itl_mean_s": 0.020}},
                        {"settings": ON, "signals": {"itl_mean_s": 0.027}},
                    )
                ]
            },
            FINDING,
            id="a longer time between tokens",
        ),
        pytest.param(
            {
                "comparisons": [
                    arms(
                        {
                            "settings": ON | {"speculative.num_tokens": 2},
                            "signals": {"output_tokens_per_s": 150},
                        },
                        {
                            "settings": ON | {"speculative.num_tokens": 8},
                            "signals": {"output_tokens_per_s": 90},
                        },
                    )
                ]
            },
            FINDING,
            id="slower the more is drafted",
        ),
        pytest.param(
            {"comparisons": [on_and_off(100, 80)], "settings": OFF},
            CLEAR,
            id="it is off now",
        ),
        pytest.param(
            {
                "model": {"params_b": 8},
                "settings": {
                    "speculative.method": "draft_model",
                    "speculative.draft_params_b": 4,
                    "speculative.num_tokens": 4,
                },
                "signals": {"spec_mean_accepted_len": 1.9},
            },
            FINDING,
            id="four drafts of half a model for less than two tokens",
        ),
        pytest.param(
            {
                "settings": ON,
                "signals": {"spec_acceptance_ratio": 0.02},
            },
            FINDING,
            id="next to nothing is accepted",
        ),
        pytest.param(
            {
                "settings": {"speculative.method": "mtp", "speculative.num_tokens": 3},
                "signals": {"spec_acceptance_ratio": 0.33},
            },
            OPEN,
            id="a third accepted of three drafts of a cheap head: it depends on the batch",
        ),
        pytest.param(
            {
                "hardware": {"gpu": "H100"},
                "settings": ON,
                "signals": {"spec_mean_accepted_len": 1.6, "requests_running": 400},
            },
            FINDING,
            id="a batch beyond the ridge pays for every drafted token",
        ),
        pytest.param(
            {
                "settings": {"speculative.method": "eagle", "speculative.num_tokens": 6},
                "workload": {"concurrency": 200},
                "signals": {"spec_mean_accepted_len": 1.5},
            },
            FINDING,
            id="on any card a batch of 200 pays for six drafts each",
        ),
        pytest.param(
            {
                "settings": {"speculative.method": "eagle", "speculative.num_tokens": 6},
                "workload": {"concurrency": 2},
                "signals": {"spec_mean_accepted_len": 1.5},
            },
            OPEN,
            id="two readers: verifying is free, and drafts may be",
        ),
        pytest.param({"settings": ON}, OPEN, id="it is on, and that is all"),
    ],
)
def test_speculation(facts: dict[str, Any], outcome: str) -> None:
    assert opinion(facts).outcome == outcome


def test_the_loss_is_that_of_the_arms() -> None:
    waste = opinion({"comparisons": [on_and_off(100, 80)]}).waste_ratio
    assert waste is not None
    assert waste.low == pytest.approx(0.2)
