"""Bootstrap of ratios by whole blocks: against resamples written out, and its coverage."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from mileage.measure.bootstrap import bootstrap_mean_ratio, bootstrap_quantile_ratio
from mileage.measure.distributions import normal_cdf, t_critical
from mileage.measure.quantiles import quantile


def test_resampled_quantiles_are_those_of_the_blocks_written_out() -> None:
    generator = np.random.default_rng(1)
    a = [generator.lognormal(0.0, 1.0, n) for n in (5, 9, 7, 12, 3, 8)]
    b = [generator.lognormal(0.1, 1.0, n) for n in (6, 4, 11, 5, 9, 7)]
    drawn = np.random.Generator(np.random.PCG64(Random(5).getrandbits(63))).multinomial(
        6, np.full(6, 1.0 / 6.0), size=300
    )

    def written_out(arm: list[np.ndarray], times: np.ndarray) -> float:
        values = [v for block, n in zip(arm, times, strict=True) for v in block.tolist() * int(n)]
        found = quantile(values, 0.9)
        assert found is not None
        return found

    logs = sorted(math.log(written_out(b, times) / written_out(a, times)) for times in drawn)
    tail = normal_cdf(-t_critical(0.05, 5) * math.sqrt(6 / 5))

    found = bootstrap_quantile_ratio(a, b, 0.9, random=Random(5), resamples=300)

    assert found is not None
    assert found.ratio == written_out(b, np.ones(6)) / written_out(a, np.ones(6))
    assert found.low == pytest.approx(math.exp(logs[int(tail * 299)]))
    assert found.high == pytest.approx(math.exp(logs[math.ceil((1.0 - tail) * 299)]))


@pytest.mark.parametrize("blocks", [8, 24])
def test_the_interval_of_independent_latencies_covers_the_true_ratio(blocks: int) -> None:
    generator = np.random.default_rng(2)
    covered = {"p50": 0, "mean": 0}
    for run in range(200):
        a = [generator.lognormal(0.0, 0.5, 100) for _ in range(blocks)]
        b = [1.2 * generator.lognormal(0.0, 0.5, 100) for _ in range(blocks)]
        found = bootstrap_quantile_ratio(a, b, 0.5, random=Random(run), resamples=500)
        mean = bootstrap_mean_ratio(a, b, random=Random(run), resamples=500)
        assert found is not None
        assert mean is not None
        covered["p50"] += found.low <= 1.2 <= found.high
        covered["mean"] += mean.low <= 1.2 <= mean.high

    assert covered["p50"] >= 178
    assert covered["mean"] >= 178


def test_the_same_seed_gives_the_same_interval() -> None:
    blocks = [np.array([1.0, 2.0, 4.0]) * k for k in range(1, 7)]
    one = bootstrap_mean_ratio(blocks, blocks[::-1], random=Random(1))
    two = bootstrap_mean_ratio(blocks, blocks[::-1], random=Random(1))

    assert one == two
    assert one is not None
    assert one.low < one.ratio == 1.0 < one.high


def test_an_arm_without_values_has_no_ratio() -> None:
    empty = [np.empty(0)] * 4
    full = [np.ones(3)] * 4

    assert bootstrap_mean_ratio(empty, full, random=Random(1)) is None
    assert bootstrap_quantile_ratio(full, empty, 0.5, random=Random(1)) is None


@pytest.mark.parametrize("blocks", [(1, 1), (3, 4)])
def test_blocks_that_do_not_pair_are_refused(blocks: tuple[int, int]) -> None:
    a, b = ([np.ones(2)] * n for n in blocks)
    with pytest.raises(ValueError, match="as many blocks"):
        bootstrap_mean_ratio(a, b, random=Random(1))
