"""The utilisation limit: compute in use, fresh observations only, and never beyond memory."""

from __future__ import annotations

import math

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.limits.limit import LimitDecision
from mileage.policy.limits.utilisation import UtilisationConfig, UtilisationLimit
from tests.support.limit_signals import signals_of, view_of


def decisions(
    busy: list[float | None],
    *,
    limit: int = 32,
    in_flight: int | None = None,
    kv: float | None = 0.3,
    running_max: int | None = 256,
    age_s: float = 0.5,
) -> list[LimitDecision]:
    """One decision a second, each after one new observation."""
    policy = UtilisationLimit(UtilisationConfig(), limit=limit)
    found = []
    for second, ratio in enumerate(busy):
        view = view_of(second - age_s, compute_busy_ratio=ratio, kv_cache_usage_ratio=kv)
        flying = limit if in_flight is None else in_flight
        signals = signals_of(flying, view=view, running_max=running_max)
        found.append(policy.update(signals, float(second)))
    return found


@pytest.mark.parametrize(
    ("busy", "limit", "after"),
    [
        pytest.param([0.9] * 2, 32, 32, id="high, two observations: not yet"),
        pytest.param([0.9] * 3, 32, 48, id="high over three: x1.5"),
        pytest.param([0.7, 0.95, 0.95], 32, 48, id="their mean counts"),
        pytest.param([0.6] * 9, 32, 32, id="between the marks: hold"),
        pytest.param([0.3] * 4, 32, 32, id="low, four observations: not yet"),
        pytest.param([0.3] * 5, 32, 24, id="low over five: /1.3"),
        pytest.param([0.3] * 5, 17, 16, id="low: not below 16"),
        pytest.param([0.3] * 5, 8, 8, id="low, and below 16 already: hold"),
        pytest.param([0.9] * 5, 32, 48, id="high over five: once, the rest is gathered anew"),
        pytest.param([None] * 5, 32, 32, id="not observed: hold"),
        pytest.param([math.nan] * 5, 32, 32, id="no number: hold"),
        pytest.param([7.0] * 5, 32, 32, id="700 %: hold"),
        pytest.param([-0.1] * 5, 32, 32, id="less than nothing: hold"),
        pytest.param([0.9, 0.9, None, 0.9], 32, 32, id="a gap: three in a row are needed"),
    ],
)
def test_utilisation_limit(busy: list[float | None], limit: int, after: int) -> None:
    assert decisions(busy, limit=limit)[-1].limit == after


@pytest.mark.parametrize(
    ("kv", "in_flight", "after"),
    [
        pytest.param(None, 32, 48, id="KV usage never told: latency is all there is"),
        pytest.param(0.84, 32, 32, id="a full cache: no growth"),
        pytest.param(0.68, 32, 40, id="room for a quarter more: grow by that"),
        pytest.param(0.99, 32, 32, id="above the mark: hold"),
        pytest.param(0.3, 31, 32, id="the limit is not reached: hold"),
        pytest.param(1.4, 32, 48, id="an impossible usage counts as none"),
    ],
)
def test_growth_ends_where_memory_does(kv: float | None, in_flight: int, after: int) -> None:
    assert decisions([0.95] * 3, kv=kv, in_flight=in_flight)[-1].limit == after


def test_the_engines_own_limit_holds() -> None:
    assert decisions([0.95] * 3, limit=8, running_max=8)[-1].limit == 8


def test_stale_observations_are_not_used() -> None:
    found = decisions([0.95] * 9, age_s=30.0)[-1]
    assert (found.limit, found.reason) == (32, "no fresh observation: held at 32")


def test_one_observation_counts_once() -> None:
    policy = UtilisationLimit(UtilisationConfig(), limit=32)
    view = view_of(0.0, compute_busy_ratio=0.95)
    assert [policy.update(signals_of(view=view), t * 0.5).limit for t in range(9)] == [32] * 9


def test_an_engine_that_stopped_telling_its_memory_does_not_grow() -> None:
    policy = UtilisationLimit(UtilisationConfig(), limit=32)
    for second in range(3):
        kv = 0.5 if second == 0 else None
        view = view_of(second, compute_busy_ratio=0.95, kv_cache_usage_ratio=kv)
        decision = policy.update(signals_of(view=view), float(second))
    assert decision.reason == "compute 95% in use, KV usage unknown: held at 32"


def test_without_views_it_says_what_is_missing() -> None:
    policy = UtilisationLimit(UtilisationConfig(), limit=32)
    assert policy.update(signals_of(), 0.0).reason == "no fresh observation: held at 32"
    assert (
        policy.update(signals_of(view=view_of(0.0)), 0.0).reason
        == "the engine's compute is not observed: held at 32"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [("low_ratio", 0.9), ("growth", 1.0), ("shrink", 0.5), ("high_samples", 0), ("high_ratio", 2)],
)
def test_bad_configuration_is_refused(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"governor\.utilisation\.{key}"):
        UtilisationConfig(**{key: value})  # type: ignore[arg-type]
