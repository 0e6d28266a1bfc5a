"""A static limit above what the engines run at once is refused, where that is known."""

from __future__ import annotations

import pytest

from mileage.cli.config import Config
from mileage.control.config import GovernorConfig
from mileage.core.errors import ConfigError
from mileage.engines.config import EmbeddedConfig, EngineConfig
from mileage.policy.limits.static import StaticConfig


def governor(limit: int, policy: str = "static") -> GovernorConfig:
    return GovernorConfig(policy=policy, static=StaticConfig(limit=limit))  # type: ignore[arg-type]


def engine(name: str, running_max: int | None) -> EngineConfig:
    return EngineConfig(kind="vllm", name=name, url=f"http://{name}:8000", running_max=running_max)


def test_above_the_embedded_engines_slots() -> None:
    with pytest.raises(ConfigError, match=r"governor\.static\.limit: got 64, expected at most 4"):
        Config(governor=governor(64), embedded=EmbeddedConfig(slots=4))
    Config(governor=governor(4), embedded=EmbeddedConfig(slots=4))
    Config(governor=governor(64, "model"), embedded=EmbeddedConfig(slots=4))


def test_above_all_engines_that_say_what_they_run() -> None:
    engines = (engine("a", 32), engine("b", 64))
    with pytest.raises(ConfigError, match=r"at most 64.*engines\.running_max"):
        Config(governor=governor(65), engines=engines)
    Config(governor=governor(64), engines=engines)
    Config(governor=governor(999), engines=(*engines, engine("c", None)))
