"""Zipf: exact probabilities at every exponent, at any size, in constant time."""

from __future__ import annotations

import math
from random import Random

import pytest

from mileage.core.errors import ConfigError
from mileage.workload.synthetic.zipf import Zipf
from tests.support.statistics_by_hand import chi_square_z


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.99, 1.0, 1.000001, 1.2, 2.5])
@pytest.mark.parametrize("count", [2, 7, 100])
def test_ranks_come_as_often_as_the_law_says(count: int, alpha: float) -> None:
    zipf, rng, draws = Zipf(count, alpha), Random(11), 40_000
    observed = [0] * count
    for _ in range(draws):
        observed[zipf.draw(rng) - 1] += 1
    expected = [draws * p for p in zipf.probabilities()]
    # Ranks that are expected too rarely for the chi-square are taken together.
    while expected[-1] < 5:
        expected[-2:], observed[-2:] = [sum(expected[-2:])], [sum(observed[-2:])]
    assert chi_square_z(observed, expected) < 3.5


def test_one_rank_is_always_drawn() -> None:
    assert {Zipf(1, alpha).draw(Random(1)) for alpha in (0.0, 1.0, 3.0)} == {1}


def test_a_billion_ranks_need_no_table() -> None:
    zipf, rng = Zipf(10**9, 1.0), Random(2)
    ranks = [zipf.draw(rng) for _ in range(4000)]
    assert 1 <= min(ranks) <= max(ranks) <= 10**9
    # Of the harmonic sum to 10**9, which is 21.3, the first 1000 ranks have 7.49.
    share = sum(rank <= 1000 for rank in ranks) / len(ranks)
    assert abs(share - 7.4855 / 21.3005) < 4 * math.sqrt(0.35 * 0.65 / len(ranks))


@pytest.mark.parametrize(("count", "alpha", "key"), [(0, 1.0, "count"), (5, -0.1, "alpha")])
def test_what_cannot_be_is_refused(count: int, alpha: float, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        Zipf(count, alpha)
