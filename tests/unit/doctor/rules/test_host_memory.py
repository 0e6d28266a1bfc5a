"""Memory that grows, and what only looks like it."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Opinion
from mileage.doctor.rules.host_memory import RULES

HOUR_S = 3600.0


def opinion(facts: dict[str, Any]) -> Opinion:
    (leak,) = RULES
    return leak.check(Evidence(decode_facts(facts)))


def rss(*values_gb: float, every_s: float = HOUR_S) -> dict[str, Any]:
    points = [{"t_s": n * every_s, "value": value} for n, value in enumerate(values_gb)]
    return {"host_rss_gb": {"series": points}}


@pytest.mark.parametrize(
    ("signals", "outcome"),
    [
        pytest.param({"host_rss_growth_gb_per_h": {"min": 0.1}}, "finding", id="a slope, at least"),
        pytest.param(
            {"host_rss_growth_gb_per_h": {"max": 0.1}},
            "not_enough_evidence",
            id="a slope of at most so much may be none",
        ),
        pytest.param({"host_rss_growth_gb_per_h": -0.2}, "clear", id="memory shrinks"),
        pytest.param({"host_rss_growth_gb_per_h": 0.001}, "clear", id="an allocator's drift"),
        pytest.param(
            {"host_rss_growth_gb_per_h": 2.0, "process_uptime_s": 400},
            "not_enough_evidence",
            id="a process that has just started fills its caches",
        ),
        pytest.param(rss(20, 21, 22.2, 23.1, 24), "finding", id="a series that rises to its end"),
        pytest.param(rss(20, 23, 23.9, 24.0, 24.0), "clear", id="a series that bends and settles"),
        pytest.param(rss(20, 24, 19, 23, 20), "clear", id="a series that goes up and down"),
        pytest.param(
            rss(20, 21, 22.2, 23.1, 24, every_s=60),
            "not_enough_evidence",
            id="five minutes are too short",
        ),
        pytest.param(
            rss(20, 21, 22.2, 23.1, 24)
            | {"requests_running": {"series": [{"value": 4}, {"value": 40}]}},
            "not_enough_evidence",
            id="the load rises as well",
        ),
        pytest.param(
            {"host_rss_gb": {"series": [{"value": 20}, {"value": 55}]}, "process_uptime_s": 90000},
            "finding",
            id="two values far apart in the life of an old process",
        ),
        pytest.param(
            {"host_rss_gb": {"series": [{"value": 20}, {"value": {"min": 15}}]}},
            "not_enough_evidence",
            id="bounds that allow no growth",
        ),
        pytest.param({"host_rss_gb": 50}, "not_enough_evidence", id="one value has no slope"),
    ],
)
def test_host_memory_leak(signals: dict[str, Any], outcome: str) -> None:
    assert opinion({"signals": signals}).outcome == outcome


def test_a_killed_process_is_critical() -> None:
    facts = {
        "signals": {"host_rss_growth_gb_per_h": 1.0},
        "logs": ["Memory cgroup out of memory: Killed process 81 (python3)"],
    }
    assert opinion(facts).severity == "critical"


def test_the_advice_says_how_long_it_lasts() -> None:
    facts = {"signals": {"host_rss_growth_gb_per_h": 0.5, "host_rss_gb": 24}}
    assert "in 48 h" in opinion(facts).advice


def test_a_later_arm_of_the_same_setup_that_is_far_larger_is_a_leak() -> None:
    arms = [
        {"arm": "first day", "signals": {"host_rss_gb": 22}},
        {"arm": "third day", "signals": {"host_rss_gb": 71}},
    ]
    assert opinion({"comparisons": [{"arms": arms}]}).outcome == "finding"
    restarted = [{"arms": arms, "restarted_between_arms": True}]
    assert opinion({"comparisons": restarted}).outcome == "not_enough_evidence"
