"""What /mileage/control and MILEAGE_POLICY may ask for, and what is told of a mistake."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.vllm_plugin.policy_settings import (
    POLICY_VARIABLE,
    PolicySettings,
    decode_policy,
    policy_from_environment,
)


def test_a_whole_document() -> None:
    document = {
        "budget": "model",
        "limits": "model",
        "itl_target_s": 0.05,
        "ttft_target_s": 1,
        "model": {"cap_ratio": 0.8},
    }
    settings = decode_policy(document)
    assert settings is not None
    assert (settings.budget, settings.limits, settings.ordering) == ("model", "model", None)
    assert (settings.itl_target_s, settings.ttft_target_s) == (0.05, 1.0)
    assert settings.model.cap_ratio == 0.8


@pytest.mark.parametrize("document", [None, {}, {"budget": None}, {"itl_target_s": 0.1}])
def test_nothing_asked_for_is_off(document: object) -> None:
    assert decode_policy(document) is None


@pytest.mark.parametrize(
    ("document", "key", "told"),
    [
        pytest.param("model", "policy", "an object", id="no object"),
        pytest.param({"budgets": "model"}, "policy.budgets", "budget, limits", id="unknown"),
        pytest.param({"budget": "best"}, "policy.budget", "fixed, model", id="no such budget"),
        pytest.param(
            {"limits": "utilisation", "itl_target_s": 1.0},
            "policy.limits",
            "aimd, volatility, tail_memory, model",
            id="needs what an engine does not see",
        ),
        pytest.param({"budget": "model"}, "policy.itl_target_s", "a target", id="no ITL target"),
        pytest.param({"limits": "aimd"}, "policy.itl_target_s", "a target", id="aimd, no target"),
        pytest.param({"ordering": "shortest"}, "policy.budget", "learn", id="no budget"),
        pytest.param({"ordering": "deadline"}, "policy.ttft_target_s", "a target", id="no TTFT"),
        pytest.param(
            {"budget": "model", "itl_target_s": 0}, "policy.itl_target_s", "positive", id="zero"
        ),
        pytest.param(
            {"budget": "model", "itl_target_s": "1"}, "policy.itl_target_s", "float", id="text"
        ),
        pytest.param(
            {"budget": "model", "itl_target_s": 1.0, "model": {"cap": 1}},
            "policy.model",
            "unknown field",
            id="unknown in model",
        ),
        pytest.param(
            {"budget": "model", "itl_target_s": 1.0, "model": {"cap_ratio": 2.0}},
            "budget.model.cap_ratio",
            "up to 1",
            id="out of range in model",
        ),
    ],
)
def test_a_mistake_is_named(document: Any, key: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        decode_policy(document)
    assert caught.value.key == key
    assert told in caught.value.expected


def test_the_environment() -> None:
    text = '{"budget": "model", "itl_target_s": 0.05}'
    found = policy_from_environment({POLICY_VARIABLE: text})
    assert found == PolicySettings(budget="model", itl_target_s=0.05)
    assert policy_from_environment({}) is None
    assert policy_from_environment({POLICY_VARIABLE: " "}) is None


@pytest.mark.parametrize("text", ["model", '{"budget": "best"}'])
def test_a_mistake_in_the_environment_names_the_variable(text: str) -> None:
    with pytest.raises(ConfigError, match="MILEAGE_POLICY"):
        policy_from_environment({POLICY_VARIABLE: text})
