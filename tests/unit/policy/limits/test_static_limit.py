"""The static limit, its bounds, and how a policy is chosen by name."""

from __future__ import annotations

import msgspec
import pytest

from mileage.control.config import GovernorConfig, LimitPolicyName
from mileage.core.errors import ConfigError
from mileage.policy.limits.bounds import LimitBounds
from mileage.policy.limits.choose import LIMIT_POLICIES, make_limit
from mileage.policy.limits.static import StaticConfig, StaticLimit
from tests.support.limit_signals import signals_of


@pytest.mark.parametrize(
    ("configured", "running_max", "limit"),
    [
        pytest.param(48, 256, 48, id="as configured"),
        pytest.param(48, None, 48, id="as configured, the engine's own limit unknown"),
        pytest.param(300, 256, 256, id="above the engine's: the engine's"),
        pytest.param(None, 256, 256, id="nothing configured: the engine's"),
        pytest.param(None, None, 500, id="nothing configured nor known: limit_max"),
        pytest.param(900, None, 500, id="above limit_max: limit_max"),
        pytest.param(1, 256, 2, id="below limit_min: limit_min"),
        pytest.param(48, 0, 48, id="an engine that says 0 says nothing"),
        pytest.param(48, -3, 48, id="an engine that says less than 0 says nothing"),
        pytest.param(48, 1, 1, id="the engine's wins over limit_min"),
    ],
)
def test_static_limit(configured: int | None, running_max: int | None, limit: int) -> None:
    policy = StaticLimit(StaticConfig(limit=configured), limit=7, bounds=LimitBounds(2, 500))
    assert policy.update(signals_of(running_max=running_max), 0.0).limit == limit


def test_what_is_out_of_bounds_is_said() -> None:
    policy = StaticLimit(StaticConfig(limit=300), limit=7)
    assert policy.update(signals_of(), 0.0).reason == "static: 256, as 300 is out of bounds"


@pytest.mark.parametrize("limit", [0, -1, 100_001])
def test_a_limit_that_makes_no_sense_is_refused(limit: int) -> None:
    with pytest.raises(ConfigError, match=r"governor\.static\.limit"):
        StaticConfig(limit=limit)


def test_every_name_that_the_configuration_takes_has_a_policy() -> None:
    names = msgspec.inspect.type_info(LimitPolicyName)
    assert isinstance(names, msgspec.inspect.LiteralType)
    assert set(names.values) == set(LIMIT_POLICIES)


@pytest.mark.parametrize("name", sorted(LIMIT_POLICIES))
def test_a_policy_is_made_by_its_name_with_its_own_configuration(name: LimitPolicyName) -> None:
    config = GovernorConfig(policy=name, limit_max=100, static=StaticConfig(limit=33))
    policy = make_limit(config, limit=50)
    assert type(policy).__name__.lower() == name.replace("_", "") + "limit"
    decision = policy.update(signals_of(in_flight=0), 0.0)
    assert decision.limit == (33 if name == "static" else 50)


def test_the_bounds_of_the_governor_hold_for_the_policy() -> None:
    policy = make_limit(GovernorConfig(policy="aimd", limit_max=100), limit=1000)
    assert policy.update(signals_of(), 0.0).limit == 100
