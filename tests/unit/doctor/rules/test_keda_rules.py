"""KEDA beside its HPA: all at once, or back and forth."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.doctor_answers import first_cause

SITUATIONS = [
    pytest.param(
        {
            "settings": {"autoscaler.kind": "keda", "hpa.scale_down_policy": "gradual"},
            "signals": {
                "replicas_current": {"series": [{"value": 10}, {"value": 10}, {"value": 0}]}
            },
        },
        "keda_cooldown_bypasses_hpa",
        id="ten replicas to none past a gradual policy: KEDA's cooldown",
    ),
    pytest.param(
        {
            "settings": {
                "keda.cooldown_s": 300,
                "keda.min_replicas": 0,
                "hpa.scale_down_stabilization_s": 300,
            },
            "signals": {"replicas_current": {"series": [{"value": 6}, {"value": 0}]}},
        },
        "keda_cooldown_bypasses_hpa",
        id="the same told by KEDA's own settings: KEDA's cooldown",
    ),
    pytest.param(
        {
            "settings": {"autoscaler.kind": "keda", "keda.min_replicas": 0},
            "signals": {
                "replicas_current": {
                    "series": [{"value": 4}, {"value": 2}, {"value": 1}, {"value": 0}]
                }
            },
        },
        None,
        id="step by step to none: nothing",
    ),
    pytest.param(
        {"settings": {"keda.idle_replicas": 1, "keda.min_replicas": 2}},
        "keda_idle_vs_min_flapping",
        id="an idle count between none and the minimum: they fight",
    ),
    pytest.param(
        {
            "settings": {"autoscaler.kind": "keda", "keda.min_replicas": 3, "keda.polling_s": 30},
            "signals": {
                "replicas_current": {
                    "series": [{"value": 1}, {"value": 3}, {"value": 1}, {"value": 3}, {"value": 1}]
                }
            },
        },
        "keda_idle_vs_min_flapping",
        id="replicas flip below the minimum: they fight",
    ),
    pytest.param(
        {
            "settings": {"keda.idle_replicas": 0, "keda.min_replicas": 2},
            "signals": {"replicas_current": {"series": [{"value": 2}, {"value": 0}, {"value": 2}]}},
        },
        None,
        id="an idle count of none works",
    ),
]


@pytest.mark.parametrize(("facts", "cause"), SITUATIONS)
def test_what_comes_first(facts: dict[str, Any], cause: str | None) -> None:
    assert first_cause(facts) == cause
