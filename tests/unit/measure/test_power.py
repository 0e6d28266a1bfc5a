"""Power of an A/B run: the formula against simulated runs, and a plan's own level."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from mileage.measure.comparison import compare
from mileage.measure.distributions import t_critical
from mileage.measure.power import block_sd, blocks_needed, plan_power, power
from mileage.measure.sequential import SequentialPlan


@pytest.mark.parametrize(
    ("effect", "blocks", "sd", "alpha"),
    [
        pytest.param(1.05, 8, 0.05, 0.05, id="few quiet blocks"),
        pytest.param(1.05, 20, 0.1, 0.05, id="more and noisier ones"),
        pytest.param(0.9, 5, 0.05, 0.01, id="a fall, at a small level"),
        pytest.param(1.3, 2, 0.1, 0.05, id="two blocks"),
        pytest.param(1.0001, 12, 0.1, 0.05, id="hardly an effect: the level"),
    ],
)
def test_power_is_what_simulated_runs_have(
    effect: float, blocks: int, sd: float, alpha: float
) -> None:
    runs = 50_000
    values = np.random.default_rng(1).normal(math.log(effect), sd, (runs, blocks))
    t = values.mean(axis=1) / (values.std(axis=1, ddof=1) / math.sqrt(blocks))
    share = float((np.abs(t) > t_critical(alpha, blocks - 1)).mean())

    stated = power(effect, blocks, sd, alpha=alpha)

    assert stated == pytest.approx(share, abs=4.0 * math.sqrt(share * (1.0 - share) / runs))


def test_blocks_needed_are_the_fewest_with_that_power() -> None:
    for effect, sd in ((1.05, 0.1), (0.98, 0.05), (1.5, 0.1)):
        found = blocks_needed(effect, sd, power_min=0.9)
        assert found is not None
        assert power(effect, found, sd) >= 0.9
        assert found == 2 or power(effect, found - 1, sd) < 0.9


def test_an_effect_that_no_run_sees_needs_more_blocks_than_there_are() -> None:
    assert blocks_needed(1.0001, 1.0, blocks_most=1000) is None
    with pytest.raises(ValueError, match="no difference"):
        blocks_needed(1.0, 0.1)
    with pytest.raises(ValueError, match="effect"):
        power(0.0, 8, 0.1)


def test_the_deviation_of_blocks_is_read_back_from_an_interval() -> None:
    a = [1.0] * 12
    b = np.exp(np.random.default_rng(4).normal(0.0, 0.1, 12))
    interval = compare("m", a, b.tolist(), better="lower").ci95_alone

    assert interval is not None
    assert block_sd(interval, 12) == pytest.approx(float(np.log(b).std(ddof=1)))


@pytest.mark.parametrize("spending", ["obrien_fleming", "pocock"])
def test_a_plan_without_an_effect_keeps_its_level_over_all_looks(spending: str) -> None:
    plan = SequentialPlan(spending="pocock" if spending == "pocock" else "obrien_fleming")

    found = plan_power(plan, 1.0, 0.1, random=Random(3))

    assert found.power == pytest.approx(0.05, abs=0.006)


def test_looks_cost_little_power_and_save_blocks() -> None:
    plan = SequentialPlan(blocks_max=40)

    found = plan_power(plan, 1.1, 0.15, random=Random(3))

    alone = power(1.1, 40, 0.15)
    assert alone - 0.02 <= found.power <= alone + 0.005
    assert found.blocks_mean < 30
