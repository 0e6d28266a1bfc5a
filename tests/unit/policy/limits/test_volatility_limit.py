"""The volatility limit: Poisson arrivals are steady, bursts are not, and time may leap."""

from __future__ import annotations

import math
from random import Random

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.limits.bounds import LimitBounds
from mileage.policy.limits.volatility import VolatilityConfig, VolatilityLimit
from tests.support.limit_signals import signals_of


def limits(
    per_half_s: list[float], *, running_max: int | None = 64, limit: int = 20, start_s: float = 0.0
) -> list[int]:
    policy = VolatilityLimit(VolatilityConfig(), limit=limit, bounds=LimitBounds(1, 1024))
    return [
        policy.update(
            signals_of(arrivals=arrivals, running_max=running_max), start_s + 0.5 * i
        ).limit
        for i, arrivals in enumerate(per_half_s)
    ]


STEADY = [5.0] * 60
BURSTS = ([40.0, 40.0] + [0.0] * 8) * 6


@pytest.mark.parametrize(
    ("arrivals", "running_max", "limit"),
    [
        pytest.param(STEADY, 64, 64, id="steady, an engine of 64: 64"),
        pytest.param(STEADY, 256, 256, id="steady, an engine of 256: all of them"),
        pytest.param(STEADY, 8, 8, id="steady, an engine of 8: all of them"),
        pytest.param(STEADY, None, 64, id="steady, the engine's limit unknown: 64"),
        pytest.param(STEADY, -1, 64, id="steady, the engine's limit is nonsense: 64"),
        pytest.param(BURSTS, 64, 8, id="bursts: 8"),
        pytest.param(BURSTS, 256, 32, id="bursts, an engine of 256: an eighth"),
        pytest.param(BURSTS, 8, 1, id="bursts, an engine of 8: one"),
        pytest.param([0.2] * 60, 64, 20, id="too few arrivals to judge: hold"),
        pytest.param([0.0] * 60, 64, 20, id="none at all: hold"),
        pytest.param([math.nan, math.inf, -5.0] * 20, 64, 20, id="nonsense counts as none: hold"),
    ],
)
def test_volatility_limit(arrivals: list[float], running_max: int | None, limit: int) -> None:
    assert limits(arrivals, running_max=running_max)[-1] == limit


def test_poisson_arrivals_are_mostly_steady() -> None:
    random = Random(1)
    found = []
    for _ in range(40):
        counts = [float(sum(random.random() < 0.01 for _ in range(1000))) for _ in range(24)]
        found.append(limits(counts)[-1])
    assert sum(found) / len(found) > 50


def test_it_holds_until_the_window_is_full() -> None:
    assert limits(STEADY)[:18] == [20] * 18


def test_after_a_leap_of_the_clock_the_window_starts_afresh() -> None:
    policy = VolatilityLimit(VolatilityConfig(), limit=20)
    for i in range(30):
        policy.update(signals_of(arrivals=5.0), 0.5 * i)
    before = policy.update(signals_of(arrivals=5.0), 15.0).limit
    leap = policy.update(signals_of(arrivals=10_000.0), 1e7)
    assert (leap.limit, leap.reason) == (before, "arrivals known for 0 s of 9 s: held")


def test_two_decisions_at_the_same_time_do_no_harm() -> None:
    policy = VolatilityLimit(VolatilityConfig(), limit=20)
    assert [policy.update(signals_of(arrivals=5.0), 1.0).limit for _ in range(5)] == [20] * 5


@pytest.mark.parametrize(
    ("key", "value"),
    [("window_s", 1.0), ("volatile_min", 65), ("volatile_min", 0), ("steady_max", 0)],
)
def test_bad_configuration_is_refused(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"governor\.volatility\.{key}"):
        VolatilityConfig(**{key: value})  # type: ignore[arg-type]
