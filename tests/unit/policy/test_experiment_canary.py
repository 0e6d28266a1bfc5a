"""When a canary goes on, and when it is rolled back."""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_left
from random import Random

import msgspec
import pytest

from mileage.policy.experiment_canary import CanaryConfig, ExperimentCanary
from mileage.policy.experiment_evidence import (
    ArmCounts,
    ExperimentEvidence,
    added,
    since,
    slow_bucket,
)

_BOUNDS = tuple(0.01 * 1.25**n for n in range(40))
_CONFIG = CanaryConfig(
    steps=(0.05, 0.25, 0.5, 1.0),
    requests_min=200,
    time_min_s=60.0,
    false_alarm_ratio=0.05,
    tolerance_ratio=0.05,
    block_requests_min=30,
    block_s=10.0,
)
_NOTHING = ArmCounts()
_WANDER, _KEPT = 0.25, 0.8


class _Arm:
    """A service whose latency wanders (an AR(1) of its own, as queues do), and that fails."""

    def __init__(self, random: Random, *, slower: float = 1.0, error_ratio: float = 0.0) -> None:
        self._random, self.slower, self.error_ratio = random, slower, error_ratio
        self._mood = random.gauss(0.0, _WANDER)
        self.counts = _NOTHING

    def second(self, requests: int) -> None:
        self._mood = _KEPT * self._mood + random_step(self._random)
        buckets = [0] * (len(_BOUNDS) + 1)
        errors = missed = 0
        for _ in range(requests):
            if self._random.random() < self.error_ratio:
                errors += 1
                continue
            took_s = 0.2 * self.slower * math.exp(self._mood + self._random.gauss(0.0, 0.5))
            missed += took_s > 0.6
            buckets[bisect_left(_BOUNDS, took_s)] += 1
        good = requests - errors
        times = tuple(buckets)
        self.counts = added(
            self.counts,
            ArmCounts(
                requests=requests, errors=errors, judged=good, missed=missed, ttft=times, e2e=times
            ),
        )


def random_step(random: Random) -> float:
    return random.gauss(0.0, _WANDER * math.sqrt(1.0 - _KEPT**2))


def _run(canary: ExperimentCanary, a: _Arm, b: _Arm, random: Random, seconds: int) -> int:
    """Seconds until it is decided; each second 40 requests come."""
    for second in range(seconds):
        in_b = sum(random.random() < canary.state.ratio for _ in range(40))
        a.second(40 - in_b)
        b.second(in_b)
        canary.update(a.counts, b.counts, float(second), b_up=True)
        if _status(canary) != "running":
            return second
    return seconds


def _status(canary: ExperimentCanary) -> str:
    return canary.state.status


def _canary(seed: int, **worse: float) -> tuple[ExperimentCanary, _Arm, int]:
    random = Random(seed)
    error_ratio = worse.pop("error_ratio", 0.0)
    canary, a = ExperimentCanary(_CONFIG, 0.0), _Arm(random)
    b = _Arm(random, error_ratio=error_ratio, **worse)
    return canary, b, _run(canary, a, b, random, 1200)


def test_an_equal_canary_is_rarely_rolled_back_and_is_promoted() -> None:
    states = [_canary(seed)[0].state for seed in range(200)]
    assert sum(state.status == "rolled_back" for state in states) <= 10
    assert sum(state.status == "promoted" for state in states) >= 180
    assert all(state.ratio == 1.0 for state in states if state.status == "promoted")


def test_errors_that_both_arms_have_roll_nothing_back() -> None:
    rolled = 0
    for seed in range(100):
        random = Random(seed)
        canary = ExperimentCanary(_CONFIG, 0.0)
        a, b = (_Arm(random, error_ratio=0.03) for _ in "ab")
        _run(canary, a, b, random, 1200)
        rolled += canary.state.status == "rolled_back"
    assert rolled <= 5


@pytest.mark.parametrize(
    ("worse", "found_min", "median_max", "requests_max", "why"),
    [
        pytest.param({"error_ratio": 0.05}, 100, 65, 190, "fail", id="5 % errors"),
        pytest.param({"slower": 2.0}, 100, 260, 1200, "", id="twice the latency"),
        pytest.param({"slower": 1.5}, 89, 850, 3300, "", id="half as long again"),
    ],
)
def test_a_worse_canary_is_rolled_back_within_so_many_of_its_requests(
    worse: dict[str, float], found_min: int, median_max: int, requests_max: int, why: str
) -> None:
    took = []
    for seed in range(100):
        canary, b, _ = _canary(seed, **worse)
        if _status(canary) == "rolled_back":
            took.append(b.counts.requests)
            assert canary.state.ratio == 0.0
            assert why in canary.state.reason
    assert len(took) >= found_min
    assert statistics.median(took) <= median_max
    assert max(took) <= requests_max


def test_errors_of_groups_are_found_too_and_take_longer() -> None:
    config = msgspec.structs.replace(_CONFIG, grouped=True)
    took = []
    for seed in range(100):
        random = Random(seed)
        canary, a = ExperimentCanary(config, 0.0), _Arm(random)
        b = _Arm(random, error_ratio=0.05)
        _run(canary, a, b, random, 1200)
        assert _status(canary) == "rolled_back", seed
        took.append(b.counts.requests)
    assert statistics.median(took) <= 130
    assert max(took) <= 360


def test_a_canary_that_becomes_worse_later_is_rolled_back_too() -> None:
    config = msgspec.structs.replace(_CONFIG, steps=(0.5,), time_min_s=1e9)
    for seed in range(20):
        random = Random(seed)
        canary = ExperimentCanary(config, 0.0)
        a, b = _Arm(random), _Arm(random)
        _run(canary, a, b, random, 600)
        assert _status(canary) == "running"
        b.slower, before = 2.5, b.counts.requests
        for second in range(600, 1200):
            a.second(20)
            b.second(20)
            canary.update(a.counts, b.counts, float(second), b_up=True)
            if _status(canary) == "rolled_back":
                break
        assert _status(canary) == "rolled_back", seed
        assert b.counts.requests - before <= 5000, seed


def test_it_goes_up_step_by_step_each_with_its_requests_and_its_time() -> None:
    canary = ExperimentCanary(_CONFIG, 0.0)
    seen: list[tuple[int, float]] = []
    for second in range(600):
        total = ArmCounts(requests=10 * second)
        state = canary.update(total, total, float(second), b_up=True)
        if not seen or seen[-1][1] != state.ratio:
            seen.append((second, state.ratio))
    assert seen == [(0, 0.05), (60, 0.25), (120, 0.5), (180, 1.0)]
    assert _status(canary) == "promoted"
    assert "not worse after 600 requests in 60 s" in canary.state.reason


def test_without_requests_no_step_is_over() -> None:
    canary = ExperimentCanary(_CONFIG, 0.0)
    for second in range(1000):
        canary.update(ArmCounts(requests=second), _NOTHING, float(second), b_up=True)
    assert canary.state.step == 0


@pytest.mark.parametrize(
    ("ups", "status"),
    [
        pytest.param([True, False], "rolled_back", id="up, then all down: at once"),
        pytest.param([False, False], "running", id="not up yet: it waits"),
        pytest.param([None, None], "running", id="no replicas of its own"),
    ],
)
def test_all_replicas_of_arm_b_down(ups: list[bool | None], status: str) -> None:
    canary = ExperimentCanary(_CONFIG, 0.0)
    for second, up in enumerate(ups):
        canary.update(_NOTHING, _NOTHING, float(second), b_up=up)
    assert _status(canary) == status


def test_what_is_rolled_back_stays_so() -> None:
    canary = ExperimentCanary(_CONFIG, 0.0)
    canary.update(_NOTHING, _NOTHING, 0.0, b_up=True)
    canary.update(_NOTHING, _NOTHING, 1.0, b_up=False)
    for second in range(2, 500):
        total = ArmCounts(requests=100 * second)
        canary.update(total, total, float(second), b_up=True)
    assert _status(canary) == "rolled_back"
    assert canary.state.reason == "all replicas of arm b are down"


def test_one_that_does_not_act_only_gathers_evidence() -> None:
    config = msgspec.structs.replace(_CONFIG, acts=False, steps=(0.5,))
    random = Random(0)
    canary = ExperimentCanary(config, 0.0)
    _run(canary, _Arm(random), _Arm(random, error_ratio=0.5), random, 300)
    assert _status(canary) == "running"
    assert canary.state.ratio == 0.5
    assert canary.evidence.value > 1e6
    assert canary.evidence.worst == "errors"


def test_the_capital_of_the_bets_has_a_mean_of_one_where_the_arms_are_equal() -> None:
    """Brute force over many histories of errors; the bound rests on this and on nothing else."""
    ends = []
    for seed in range(4000):
        random = Random(seed)
        evidence = ExperimentEvidence(tolerance_ratio=0.05)
        for _ in range(6):
            in_b = sum(random.random() < 0.3 for _ in range(4))  # of 4 errors, drawn by share
            evidence.block(
                ArmCounts(requests=70, errors=4 - in_b), ArmCounts(requests=30, errors=in_b)
            )
        ends.append(min(evidence.by_measure["errors"], 50.0))
    assert sum(ends) / len(ends) < 1.1


@pytest.mark.parametrize(
    ("counts", "bucket"),
    [
        pytest.param((), None, id="nothing seen"),
        pytest.param((5, 5, 5), None, id="too few"),
        pytest.param((0, 100, 0), 2, id="all in one bucket"),
        pytest.param((50, 25, 25), 2, id="three quarters are below"),
    ],
)
def test_the_first_bucket_that_is_slow(counts: tuple[int, ...], bucket: int | None) -> None:
    assert slow_bucket(counts) == bucket


def test_totals_are_added_and_subtracted() -> None:
    one = ArmCounts(requests=3, errors=1, judged=2, missed=1, ttft=(1, 2))
    other = ArmCounts(requests=2, judged=1, ttft=(0, 1), e2e=(4, 0))
    both = added(one, other)
    assert both == ArmCounts(requests=5, errors=1, judged=3, missed=1, ttft=(1, 3), e2e=(4, 0))
    assert since(both, other) == msgspec.structs.replace(one, e2e=(0, 0))


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5, 0.95])
@pytest.mark.parametrize("groups", [(1,), (40,), (1, 1, 30), (5, 5, 5, 5)])
def test_a_bet_on_groups_is_fair_whatever_they_hold(share: float, groups: tuple[int, ...]) -> None:
    """Exactly: over all ways to deal groups of errors to the arms, by each way's chance."""
    mean = 0.0
    for dealt in itertools.product((False, True), repeat=len(groups)):
        chance = math.prod(share if in_b else 1.0 - share for in_b in dealt)
        errors = sum(size for size, in_b in zip(groups, dealt, strict=True) if in_b)
        evidence = ExperimentEvidence(tolerance_ratio=0.05, grouped=True)
        total = 100 * sum(groups)
        in_b = round(total * share)
        evidence.block(
            ArmCounts(requests=total - in_b, errors=sum(groups) - errors),
            ArmCounts(requests=in_b, errors=errors),
        )
        mean += chance * evidence.by_measure["errors"]
    assert mean == pytest.approx(1.0)


@pytest.mark.parametrize(("grouped", "rolled_max"), [(True, 6), (False, 200)])
def test_groups_that_fail_as_a_whole_roll_nothing_back(grouped: bool, rolled_max: int) -> None:
    """One group in 200 fails, with all of its 30 requests, in either arm."""
    config = msgspec.structs.replace(_CONFIG, steps=(0.5,), time_min_s=1e9, grouped=grouped)
    rolled = 0
    for seed in range(120):
        random = Random(seed)
        canary, totals = ExperimentCanary(config, 0.0), [_NOTHING, _NOTHING]
        for second in range(600):
            arm = int(random.random() < 0.5)
            failed = 30 if random.random() < 0.005 else 0
            totals[arm] = added(totals[arm], ArmCounts(requests=30, errors=failed))
            canary.update(totals[0], totals[1], float(second), b_up=True)
        rolled += _status(canary) == "rolled_back"
    assert rolled <= rolled_max
    assert grouped or rolled > 40  # by requests such groups are taken for an arm that fails


def test_what_is_promoted_by_order_is_judged_by_what_comes_from_then_on() -> None:
    config = msgspec.structs.replace(_CONFIG, steps=(0.5,))
    random = Random(0)
    canary, a, b = ExperimentCanary(config, 0.0), _Arm(random), _Arm(random, error_ratio=0.5)
    second = _run(canary, a, b, random, 300)
    assert _status(canary) == "rolled_back"
    canary.promote(1.0, "by hand")
    for later in range(second + 1, second + 100):
        b.second(40)
        canary.update(a.counts, b.counts, float(later), b_up=True)
    assert (canary.state.status, canary.state.ratio) == ("promoted", 1.0)
    canary.update(a.counts, b.counts, float(second + 100), b_up=False)
    assert _status(canary) == "rolled_back"
