"""How long idle models stay: against one who knows when the next use comes."""

from __future__ import annotations

from random import Random

import pytest

from mileage.policy.residency.idle import IdleGaps, break_even_s


def ratio(gaps: list[float], load_cost_s: float) -> float:
    """What our times cost through these pauses, over what the clairvoyant pays."""
    known = IdleGaps()
    for gap_s in gaps:
        known.ended(gap_s, known.keep_s(load_cost_s), load_cost_s)
    return known.paid_s / known.optimum_s


def test_a_load_costs_its_own_time_and_that_of_who_waits() -> None:
    assert break_even_s(3.0, 60.0) == 183.0


def test_a_model_of_which_nothing_is_known_stays_for_the_break_even() -> None:
    assert IdleGaps().keep_s(100.0) == 100.0


@pytest.mark.parametrize(
    ("gaps", "at_most"),
    [
        pytest.param([30.0] * 300, 1.0, id="short pauses: it always stays"),
        pytest.param([3600.0] * 300, 1.03, id="long pauses: it goes at once"),
        pytest.param(([20.0] * 40 + [30_000.0]) * 30, 1.1, id="days and nights"),
        pytest.param([90.0, 110.0] * 150, 1.08, id="about the break-even: none can be told"),
    ],
)
def test_regular_traffic_costs_little_more_than_the_optimum(
    gaps: list[float], at_most: float
) -> None:
    assert ratio(gaps, 100.0) <= at_most


@pytest.mark.parametrize("mean_s", [10.0, 50.0, 100.0, 300.0, 2000.0])
def test_pauses_without_memory_cost_little_more_than_the_best_time_for_them(mean_s: float) -> None:
    random = Random(7)
    gaps = [random.expovariate(1.0 / mean_s) for _ in range(3000)]
    known = IdleGaps()
    for gap_s in gaps:
        known.ended(gap_s, known.keep_s(100.0), 100.0)
    # Of such pauses nothing can be told while they last: to stay always, or never, is the best.
    best_s = min(sum(gaps), 100.0 * len(gaps))
    assert known.paid_s <= 1.15 * best_s


def test_who_is_fooled_again_and_again_loses_no_more_than_twice_and_one_break_even() -> None:
    known = IdleGaps()
    for _ in range(2000):
        keep_s = known.keep_s(100.0)
        known.ended(keep_s + 0.001, keep_s, 100.0)  # it comes just when it is gone
    assert known.paid_s <= 2.0 * known.optimum_s + 100.0


def test_the_next_use_is_expected_after_what_pauses_as_long_were_like() -> None:
    known = IdleGaps()
    assert known.return_s(0.0) is None
    for gap_s in (10.0, 10.0, 10.0, 10.0, 100.0, 300.0):
        known.ended(gap_s, 50.0, 50.0)
    assert known.return_s(50.0) == pytest.approx(150.0)
    assert known.return_s(300.0) is None


def test_a_burst_does_not_make_it_forget_longer_pauses() -> None:
    known = IdleGaps()
    for gap_s in [20.0] * 10 + [0.5] * 500 + [2.0] * 100:
        known.ended(gap_s, known.keep_s(100.0), 100.0)
    assert known.keep_s(100.0) == 100.0
