"""Versions that are slower, and comparisons that prove nothing."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Opinion
from mileage.doctor.rules.validity import RULES

FINDING, CLEAR, OPEN = "finding", "clear", "not_enough_evidence"

HOUR_S = 3600


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in RULES if each.id == rule)
    return check(Evidence(decode_facts(facts)))


def compared(*each: dict[str, Any], restarted: bool | None = None) -> dict[str, Any]:
    arms = [{"arm": str(n)} | arm for n, arm in enumerate(each)]
    extra = {} if restarted is None else {"restarted_between_arms": restarted}
    return {"comparisons": [{"arms": arms} | extra]}


def arm(
    rate: Any,
    *,
    version: str | None = None,
    settings: dict[str, Any] | None = None,
    workload: dict[str, Any] | None = None,
    **signals: Any,
) -> dict[str, Any]:
    return {
        "engine": {} if version is None else {"version": version},
        "settings": settings or {},
        "workload": workload or {},
        "signals": {"throughput_rel": rate} | signals,
    }


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            compared(arm(1, version="0.9.2"), arm(0.8, version="0.10.0")),
            FINDING,
            id="0.10 comes after 0.9, and is slower",
        ),
        pytest.param(
            compared(arm(1, version="0.10.0"), arm(0.8, version="0.9.2")),
            CLEAR,
            id="the older one is slower",
        ),
        pytest.param(
            compared(arm(1, version="0.9.2"), arm(0.99, version="0.10.0")),
            CLEAR,
            id="a difference within noise",
        ),
        pytest.param(
            compared(arm(1, version="0.9.2"), arm({"max": 0.99}, version="0.10.0")),
            FINDING,
            id="slower, by how much is not known",
        ),
        pytest.param(
            compared(
                arm(1, version="1.0", settings={"max_num_seqs": 64}),
                arm(0.8, version="1.1", settings={"max_num_seqs": 32}),
            ),
            CLEAR,
            id="a setting changed as well",
        ),
        pytest.param(
            compared(arm(1, version="1.0"), arm(0.8, version="1.1"))
            | {"signals": {"cpu_throttled_ratio": 0.3}},
            CLEAR,
            id="the container is out of CPU",
        ),
        pytest.param(
            compared(arm(1, version="1.0"), arm(0.8, version="1.1"))
            | {"settings": {"k8s.cpu_limit": 16}, "signals": {"cpu_cores_used": 3}},
            FINDING,
            id="a quota with plenty left excuses nothing",
        ),
        pytest.param(
            compared(arm(1, version="1.0"), arm(0.8, version="1.1") | {"current": True}),
            FINDING,
            id="the newer one runs now",
        ),
        pytest.param(
            compared(arm(1, version="1.0") | {"current": True}, arm(0.8, version="1.1")),
            OPEN,
            id="the older one runs now",
        ),
    ],
)
def test_version(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("VALID001", facts).outcome == outcome


def caps(*each: int) -> list[dict[str, Any]]:
    return [{"max_num_seqs": cap} for cap in each]


FIRST, SECOND = caps(64, 128)


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            compared(
                arm(1, settings=FIRST, process_uptime_s=90 * HOUR_S),
                arm(2, settings=SECOND, process_uptime_s={"max": 600}),
            ),
            FINDING,
            id="the old process against a fresh one",
        ),
        pytest.param(
            compared(
                arm(1, settings=FIRST, process_uptime_s=2 * HOUR_S),
                arm(2, settings=SECOND, process_uptime_s=1.5 * HOUR_S),
            ),
            OPEN,
            id="processes of like age",
        ),
        pytest.param(
            compared(
                arm(2, settings=FIRST, process_uptime_s=90 * HOUR_S),
                arm(1, settings=SECOND, process_uptime_s=600),
            ),
            OPEN,
            id="the old process is the faster one: age does not excuse that",
        ),
        pytest.param(
            compared(
                arm(1, settings={"k8s.cpu_limit": 8}),
                arm(1.9, settings={"k8s.cpu_limit": 3}),
                restarted=True,
            ),
            FINDING,
            id="fewer cores and yet faster, after a restart",
        ),
        pytest.param(
            compared(
                arm(1, settings={"k8s.cpu_limit": 3}),
                arm(1.9, settings={"k8s.cpu_limit": 8}),
                restarted=True,
            ),
            OPEN,
            id="more cores and faster, as expected",
        ),
        pytest.param(
            compared(
                arm(1, version="1.0", settings=FIRST), arm(1.5, version="1.1", settings=SECOND)
            ),
            FINDING,
            id="version and setting at once",
        ),
        pytest.param(
            compared(
                arm(1, settings=FIRST, workload={"isl_tokens": 4000}),
                arm(1.5, settings=SECOND, workload={"isl_tokens": 500}),
            ),
            FINDING,
            id="shorter prompts and another setting",
        ),
        pytest.param(
            compared(arm(1, workload={"isl_tokens": 4000}), arm(1.5, workload={"isl_tokens": 500})),
            OPEN,
            id="a sweep of the load",
        ),
        pytest.param(
            compared(
                arm(1, settings=FIRST, prefix_cache_hit_ratio=0.02),
                arm(2, settings=SECOND, prefix_cache_hit_ratio=0.9),
            ),
            FINDING,
            id="the second run found the prompts of the first in the cache",
        ),
        pytest.param(
            compared(
                arm(1, settings={"enable_prefix_caching": False}, prefix_cache_hit_ratio=0),
                arm(2, settings={"enable_prefix_caching": True}, prefix_cache_hit_ratio=0.9),
            ),
            OPEN,
            id="the cache was what was changed",
        ),
        pytest.param(
            compared(arm(1, settings=FIRST), arm(1.4, settings=SECOND))
            | {"workload": {"concurrency": 10}},
            FINDING,
            id="both caps are above the load and yet there is a difference",
        ),
        pytest.param(
            compared(
                arm(1, settings=FIRST, process_uptime_s={"min": 86400}),
                arm(1.7, settings=SECOND),
                restarted=True,
            ),
            FINDING,
            id="a day old before the restart, and after it another setting",
        ),
        pytest.param(
            compared(arm(1, settings=FIRST), arm(1.4, settings=SECOND)),
            OPEN,
            id="one setting and a difference: an A/B",
        ),
    ],
)
def test_confounded(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("VALID002", facts).outcome == outcome


def test_a_leak_that_a_restart_cures_is_no_doubtful_setting() -> None:
    facts = compared(
        arm(1, process_uptime_s=90 * HOUR_S), arm(2, process_uptime_s=600), restarted=True
    ) | {"signals": {"host_rss_growth_gb_per_h": 0.4}}
    assert opinion("VALID002", facts).outcome != FINDING
