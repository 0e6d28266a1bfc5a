"""Clocks that are low for heat, for power, for idleness, or by a lock."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Opinion
from mileage.doctor.rules.thermal import RULES

FINDING, CLEAR, OPEN = "finding", "clear", "not_enough_evidence"

LOW_CLOCK = {"sm_clock_mhz": 1100, "sm_clock_max_mhz": 1980}


def opinion(facts: dict[str, Any]) -> Opinion:
    (rule,) = RULES
    return rule.check(Evidence(decode_facts(facts)))


@pytest.mark.parametrize(
    ("signals", "outcome"),
    [
        pytest.param({"throttle_thermal_ratio": {"min": 0.1}}, FINDING, id="a thermal reason"),
        pytest.param(
            {"throttle_thermal_ratio": [0, 0, 0.6, 0]}, FINDING, id="one card of four is too hot"
        ),
        pytest.param(
            LOW_CLOCK | {"gpu_util_ratio": 0.99, "power_w": 400, "power_limit_w": 700},
            FINDING,
            id="a low clock under load with power to spare",
        ),
        pytest.param(
            LOW_CLOCK | {"gpu_util_ratio": 0.99, "power_w": 698, "power_limit_w": 700},
            CLEAR,
            id="a low clock at the power limit",
        ),
        pytest.param(
            LOW_CLOCK
            | {
                "gpu_util_ratio": 0.99,
                "power_w": 698,
                "power_limit_w": 700,
                "throttle_thermal_ratio": 0,
                "throttle_power_ratio": 0.9,
            },
            CLEAR,
            id="the power cap, and no thermal reason",
        ),
        pytest.param(
            LOW_CLOCK | {"gpu_util_ratio": 0, "requests_running": 0, "power_w": 70},
            CLEAR,
            id="a low clock on an idle card",
        ),
        pytest.param(
            LOW_CLOCK
            | {
                "gpu_util_ratio": 0.99,
                "power_w": 400,
                "power_limit_w": 700,
                "sm_clock_locked_ratio": 0.56,
            },
            CLEAR,
            id="the clock was locked",
        ),
        pytest.param(
            {"gpu_temp_c": 88, "gpu_slowdown_temp_c": 87, "requests_running": 4},
            FINDING,
            id="hotter than the slowdown temperature",
        ),
        pytest.param(
            {"gpu_temp_c": 70, "gpu_slowdown_temp_c": 87, "requests_running": 4},
            OPEN,
            id="seventeen degrees below it: its memory may be hotter",
        ),
        pytest.param(
            {
                "gpu_temp_c": {"series": [{"value": 60}, {"value": 78}, {"value": 86}]},
                "sm_clock_mhz": {"series": [{"value": 1900}, {"value": 1700}, {"value": 1200}]},
                "requests_running": 12,
            },
            FINDING,
            id="the clock falls as the card warms",
        ),
        pytest.param(
            {
                "sm_clock_mhz": [1900, 1890, 1200, 1900],
                "power_w": [500, 510, 300, 505],
                "power_limit_w": 700,
                "requests_running": 40,
            },
            FINDING,
            id="one card of a group is far slower than its peers, with power to spare",
        ),
        pytest.param(
            {"gpu_temp_c": 92, "requests_running": 4, "power_w": 280, "power_limit_w": 400},
            FINDING,
            id="hotter than any card for servers may be, with power to spare",
        ),
        pytest.param(LOW_CLOCK, OPEN, id="a low clock, and whether there is load is not known"),
        pytest.param({"gpu_temp_c": 80}, OPEN, id="a temperature alone"),
    ],
)
def test_heat(signals: dict[str, Any], outcome: str) -> None:
    assert opinion({"signals": signals}).outcome == outcome


def test_the_driver_says_it_in_its_log() -> None:
    assert opinion({"logs": ["        SW Thermal Slowdown        : Active"]}).outcome == FINDING
    assert opinion({"logs": ["        SW Thermal Slowdown        : Not Active"]}).outcome == OPEN
