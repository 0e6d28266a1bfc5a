"""Routing: who is chosen of whom, and when the preferred replica yields."""

from __future__ import annotations

import math
from random import Random

import pytest

from mileage.core.errors import ConfigError
from mileage.core.replica import ReplicaView
from mileage.policy.load import ReplicaLoad
from mileage.policy.routing import Candidates, Router, RoutingConfig, name_hash
from mileage.policy.service_rate import FleetRates

NAMES = ("alpha", "beta", "gamma", "delta")
S_PER_TOKEN = 1 / 400.0  # as assumed before anything is learned
FREE_TOKENS = 7 * 200


class Scripted(Random):
    """Gives the numbers it is told, and fails when asked for more."""

    def __init__(self, *draws: float) -> None:
        super().__init__(0)
        self.draws = list(draws)

    def random(self) -> float:
        return self.draws.pop(0)


def fleet(*works: float) -> Candidates[ReplicaLoad]:
    rates = FleetRates()
    loads = [ReplicaLoad(name_hash(name), rates, 10.0) for name in NAMES[: len(works)]]
    for load, work in zip(loads, works, strict=True):
        if work:
            load.started(work, 0.0)
    return Candidates(loads)


def key_that_prefers(candidates: Candidates[ReplicaLoad], place: int) -> int:
    return next(k for k in range(1000) if candidates.preferred(k) is candidates.loads[place])


def make_hot(load: ReplicaLoad) -> None:
    load.observed(ReplicaView(replica="", observed_s=0.0, kv_cache_usage_ratio=1.0), 0.0)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        pytest.param("routing.affinity_slack_s", {"affinity_slack_s": -0.1}, id="negative slack"),
        pytest.param("routing.affinity_slack_s", {"affinity_slack_s": math.nan}, id="no number"),
        pytest.param("routing.view_max_age_s", {"view_max_age_s": 0.0}, id="every view too old"),
        pytest.param("routing.view_max_age_s", {"view_max_age_s": math.inf}, id="no view too old"),
        pytest.param("routing.attempts_max", {"attempts_max": 0}, id="no attempt"),
        pytest.param("routing.attempts_max", {"attempts_max": 11}, id="endless attempts"),
    ],
)
def test_config_refuses(key: str, values: dict[str, float]) -> None:
    with pytest.raises(ConfigError) as caught:
        RoutingConfig(**values)  # type: ignore[arg-type]
    assert caught.value.key == key


def test_a_lone_candidate_needs_no_draw_and_no_comparison() -> None:
    candidates = fleet(1e9)
    assert (
        Router(RoutingConfig(), Scripted()).choose(candidates, 1.0, 5, 0.0) is (candidates.loads[0])
    )


@pytest.mark.parametrize(
    ("draws", "place"),
    [
        pytest.param((0.0, 0.0), 1, id="first two: the second draw skips the first"),
        pytest.param((0.25, 0.0), 1, id="the same two in the other order"),
        pytest.param((0.5, 0.99), 2, id="last two: the third has less work"),
        pytest.param((0.99, 0.99), 2, id="the same two in the other order again"),
        pytest.param((0.99, 0.0), 0, id="last and first"),
    ],
)
def test_the_better_of_two_drawn_at_random(draws: tuple[float, float], place: int) -> None:
    candidates = fleet(300.0, 100.0, 900.0, 1000.0)
    chosen = Router(RoutingConfig(), Scripted(*draws)).choose(candidates, 10.0, None, 0.0)
    assert chosen is candidates.loads[place]


def test_all_of_equals_are_chosen_about_as_often() -> None:
    candidates = fleet(0.0, 0.0, 0.0, 0.0)
    router = Router(RoutingConfig(), Random(1))
    chosen = [router.choose(candidates, 10.0, None, 0.0) for _ in range(4000)]
    for load in candidates.loads:
        assert 900 < sum(c is load for c in chosen) < 1100


@pytest.mark.parametrize(
    ("cool_work", "hot_work", "hot_wins"),
    [
        pytest.param(190.0, 100.0, False, id="a hot one counts double"),
        pytest.param(300.0, 100.0, True, id="but not more than that"),
    ],
)
@pytest.mark.parametrize("draws", [(0.0, 0.0), (0.5, 0.0)], ids=["hot first", "hot second"])
def test_a_hot_replica_gets_less(
    draws: tuple[float, float], cool_work: float, hot_work: float, hot_wins: bool
) -> None:
    candidates = fleet(hot_work, cool_work)
    make_hot(candidates.loads[0])
    chosen = Router(RoutingConfig(), Scripted(*draws)).choose(candidates, 0.0, None, 0.0)
    assert (chosen is candidates.loads[0]) is hot_wins


def test_when_all_are_hot_none_is() -> None:
    candidates = fleet(150.0, 100.0)
    for load in candidates.loads:
        make_hot(load)
    for draws in ((0.0, 0.0), (0.5, 0.0)):
        chosen = Router(RoutingConfig(), Scripted(*draws)).choose(candidates, 0.0, None, 0.0)
        assert chosen is candidates.loads[1]


@pytest.mark.parametrize(
    ("preferred_tokens", "other_tokens", "stays"),
    [
        pytest.param(FREE_TOKENS, 0, True, id="nobody waits: it keeps its prefix, without a draw"),
        pytest.param(FREE_TOKENS + 200, 0, True, id="it is longer by the slack"),
        pytest.param(FREE_TOKENS + 201, 0, False, id="it is longer by more than the slack: yields"),
        pytest.param(
            FREE_TOKENS + 1200, FREE_TOKENS + 1000, True, id="both wait, about as long: stays"
        ),
        pytest.param(
            FREE_TOKENS + 1201, FREE_TOKENS + 1000, False, id="both wait, one far longer: yields"
        ),
    ],
)
def test_the_preferred_replica_yields_by_wait(
    preferred_tokens: int, other_tokens: int, stays: bool
) -> None:
    candidates = fleet(preferred_tokens, other_tokens)
    key = key_that_prefers(candidates, 0)
    needs_draw = preferred_tokens * S_PER_TOKEN > FREE_TOKENS * S_PER_TOKEN + 0.5
    router = Router(RoutingConfig(affinity_slack_s=0.5), Scripted(*(0.0, 0.0) * needs_draw))
    chosen = router.choose(candidates, 10.0, key, 0.0)
    assert (chosen is candidates.loads[0]) is stays


def test_a_hot_preferred_replica_yields_to_one_that_is_not() -> None:
    candidates = fleet(150.0, 100.0)
    key = key_that_prefers(candidates, 0)
    make_hot(candidates.loads[0])
    router = Router(RoutingConfig(), Scripted(0.0, 0.0, 0.0, 0.0))
    assert router.choose(candidates, 500.0, key, 0.0) is candidates.loads[1]
    make_hot(candidates.loads[1])  # then there is nothing to gain
    assert router.choose(candidates, 500.0, key, 0.0) is candidates.loads[0]


@pytest.mark.parametrize(
    ("affinity", "key"),
    [pytest.param(False, 7, id="switched off"), pytest.param(True, None, id="no prefix to hash")],
)
def test_without_affinity_work_alone_decides(affinity: bool, key: int | None) -> None:
    candidates = fleet(100.0, 0.0)
    router = Router(RoutingConfig(affinity=affinity), Random(3))
    chosen = {id(router.choose(candidates, 10.0, key, 0.0)) for _ in range(50)}
    assert chosen == {id(candidates.loads[1])}


def test_preference_is_the_same_in_every_process() -> None:
    # Golden values: a change of the hash moves every prefix to a cold cache at an upgrade.
    candidates = fleet(0.0, 0.0, 0.0, 0.0)
    keys = (0, 1, 2, 3, 7919, 2**32 - 1, 2**63, 2**64 - 1, -1)
    assert [hex(name_hash(name)) for name in NAMES[:2]] == [
        "0x9a08c8ea20d20653",
        "0xae2e3fac884c4c13",
    ]
    places = [candidates.loads.index(candidates.preferred(key)) for key in keys]
    assert places == [2, 3, 0, 0, 3, 3, 0, 0, 0]
