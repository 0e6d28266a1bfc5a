"""The A/B statistics keep what they promise: the level with all looks, coverage and power."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from mileage.measure.comparison import compare
from mileage.measure.power import plan_power
from mileage.measure.run_figures import RunFigures
from mileage.measure.sequential import SequentialPlan
from tests.support.ab_world import Arms, failing_arms, lognormal_arms, queue_arms, run_plan

BLOCKS = (8, 12, 24, 40)
PLAN = SequentialPlan()
SEEDS = 200
FALSE_MAX = 17
"""What a test with a level of 5 % stays within in 99 % of such experiments of 200 runs."""

MakeArms = Callable[[np.random.Generator], Arms]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda g: lognormal_arms(g, requests=200), id="independent latencies"),
        pytest.param(
            lambda g: lognormal_arms(g, requests=60, sigma=1.0), id="few requests, heavy tails"
        ),
        pytest.param(lambda g: queue_arms(g, requests=200, load=0.7), id="a queue"),
        pytest.param(
            lambda g: queue_arms(g, requests=200, load=0.9),
            id="a busy queue whose memory is as long as a slot",
        ),
        pytest.param(lambda g: queue_arms(g, requests=1000, load=0.7), id="a queue, long slots"),
        pytest.param(lambda g: failing_arms(g, requests=100, share=0.02), id="failures"),
        pytest.param(lambda g: failing_arms(g, requests=100, share=0.001), id="few failures"),
        pytest.param(
            lambda g: failing_arms(g, requests=100, share=0.02, clump=10), id="failures in clumps"
        ),
    ],
)
def test_equal_arms_are_told_apart_in_at_most_17_of_200_runs(make: MakeArms) -> None:
    verdicts = [run_plan(make(np.random.default_rng(s)), PLAN).verdict for s in range(SEEDS)]

    assert sum(v in ("better", "worse", "mixed") for v in verdicts) <= FALSE_MAX
    assert verdicts.count("invalid") <= 4


@pytest.mark.parametrize("spending", ["obrien_fleming", "pocock"])
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda g: lognormal_arms(g, requests=100), id="independent latencies"),
        pytest.param(lambda g: queue_arms(g, requests=200, load=0.7), id="a queue"),
    ],
)
def test_one_metric_that_may_spend_all_of_the_error_keeps_the_level(
    make: MakeArms, spending: str
) -> None:
    plan = SequentialPlan(spending="pocock" if spending == "pocock" else "obrien_fleming")
    verdicts = [
        run_plan(make(np.random.default_rng(1000 + s)), plan, deciding=("e2e_p50_s",)).verdict
        for s in range(SEEDS)
    ]

    assert sum(v in ("better", "worse") for v in verdicts) <= FALSE_MAX


def test_a_true_difference_of_5_percent_is_found_with_the_power_that_is_stated() -> None:
    """The log of a median of n lognormal values has a deviation of sqrt(pi / 2) sigma / sqrt(n)."""
    sigma, requests, effect = 0.5, 100, 1.05
    sd = math.sqrt(2.0) * math.sqrt(math.pi / 2.0) * sigma / math.sqrt(requests)
    stated = plan_power(PLAN, effect, sd, random=Random(1))
    runs = 400

    found = [
        run_plan(
            lognormal_arms(np.random.default_rng(s), requests=requests, effect=effect, sigma=sigma),
            PLAN,
            deciding=("e2e_p50_s",),
        )
        for s in range(runs)
    ]

    share = sum(r.verdict == "worse" for r in found) / runs
    error = math.sqrt(stated.power * (1.0 - stated.power) / runs)
    assert 0.6 < stated.power < 0.95  # else the comparison would show nothing
    assert share == pytest.approx(stated.power, abs=3.0 * error + 0.01)
    assert np.mean([r.blocks for r in found]) == pytest.approx(stated.blocks_mean, rel=0.05)


@pytest.mark.parametrize(
    "share", [pytest.param(0.001, id="few"), pytest.param(0.02, id="2 of 100")]
)
@pytest.mark.parametrize("clump", [1, 10])
def test_failures_alone_that_may_spend_all_of_the_error_keep_the_level(
    share: float, clump: int
) -> None:
    verdicts = [
        run_plan(
            failing_arms(np.random.default_rng(s), requests=100, share=share, clump=clump),
            PLAN,
            deciding=("failed_ratio",),
        ).verdict
        for s in range(SEEDS)
    ]

    assert sum(v in ("better", "worse") for v in verdicts) <= FALSE_MAX
    assert verdicts.count("invalid") <= 4


def test_an_arm_that_fails_5_requests_of_100_is_found_worse_though_the_rest_is_faster() -> None:
    def found(seed: int) -> str:
        generator = np.random.default_rng(seed)
        arms = failing_arms(generator, requests=100, share=0.005, times=10.0, effect=0.8)
        return run_plan(arms, PLAN).verdict

    verdicts = [found(seed) for seed in range(100)]

    assert verdicts.count("worse") >= 98
    assert verdicts.count("better") == 0


def test_a_difference_of_5_percent_in_service_is_found_in_a_queue() -> None:
    def found(seed: int) -> str:
        generator = np.random.default_rng(seed)
        return run_plan(queue_arms(generator, requests=1000, load=0.7, effect=1.05), PLAN).verdict

    verdicts = [found(seed) for seed in range(100)]

    assert verdicts.count("worse") >= 80
    assert verdicts.count("better") == 0


@functools.cache
def slots_of(kind: str) -> list[list[tuple[RunFigures, RunFigures]]]:
    """Of each run the two arms' figures, slot by slot; a shorter run is the beginning of one."""
    generator = np.random.default_rng(7)
    runs = []
    for _ in range(400):
        if kind == "queue":
            arms = queue_arms(generator, requests=200, load=0.7)
        else:
            arms = lognormal_arms(generator, requests=200)
        slots = [arms(block) for block in range(max(BLOCKS))]
        runs.append([(a.figures, b.figures) for a, b in slots])
    return runs


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("figure", ["p50", "p99", "mean"])
@pytest.mark.parametrize("kind", ["independent", "queue"])
def test_the_plain_interval_covers_the_true_ratio(blocks: int, figure: str, kind: str) -> None:
    """b is 1.1 times as slow in all it does, so each quantile's ratio is 1.1, too."""
    runs, covered = slots_of(kind), 0
    for slots in runs:
        a = [getattr(x.e2e_s, figure) for x, _ in slots[:blocks]]
        b = [1.1 * getattr(y.e2e_s, figure) for _, y in slots[:blocks]]
        interval = compare("e2e_s", a, b, better="lower").ci95_alone
        assert interval is not None
        covered += interval[0] <= 1.1 <= interval[1]

    assert covered / len(runs) == pytest.approx(0.95, abs=0.035)
