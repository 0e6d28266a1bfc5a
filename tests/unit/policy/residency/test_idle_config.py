"""What the configuration of idle models refuses, and what one model has of its own."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.residency.idle_config import IdleConfig, ModelIdleConfig


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"fixed_s": -1.0}, "idle.fixed_s"),
        ({"wait_cost_ratio": -1.0}, "idle.wait_cost_ratio"),
        ({"resident_min_s": -1.0}, "idle.resident_min_s"),
        ({"memory_max_bytes": 0}, "idle.memory_max_bytes"),
        ({"keep_warm": ("sometimes",)}, "idle.keep_warm"),
        ({"retry_s": 10.0, "retry_max_s": 1.0}, "idle.retry_s"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        IdleConfig(**fields)
    assert caught.value.key == key


def test_a_model_has_what_is_its_own_and_else_what_all_have() -> None:
    config = IdleConfig(
        fixed_s=10.0,
        keep_warm=("08:00-18:00",),
        models={"law": ModelIdleConfig(policy="fixed", keep_warm=(), tenants=("legal",))},
    )
    law = config.of("law")
    assert (law.policy, law.fixed_s, law.keep_warm) == ("fixed", 10.0, ())
    assert config.of("other") is config
    assert config.private_models() == {"law": ("legal",)}
