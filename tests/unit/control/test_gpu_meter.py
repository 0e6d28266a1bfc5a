"""GPU time shared out to requests: whole, and by weight."""

from __future__ import annotations

import pytest

from mileage.control.gpu_meter import GpuMeter, split, weight_of

SECOND_NS = 1_000_000_000


def test_a_request_alone_has_all_of_the_replica() -> None:
    meter = GpuMeter(gpus=4)
    mark = meter.start(7, 10.0)
    assert meter.end(7, mark, 12.5) == 10 * SECOND_NS


def test_two_share_by_weight_while_both_are_there() -> None:
    meter = GpuMeter()
    first = meter.start(30, 0.0)
    second = meter.start(10, 1.0)
    # 1 s alone, then 2 s of which 3/4 are its own.
    assert meter.end(30, first, 3.0) == 2_500_000_000
    assert meter.end(10, second, 4.0) == 1_500_000_000


def test_idle_time_is_nobodys() -> None:
    meter = GpuMeter()
    mark = meter.start(1, 5.0)
    assert meter.end(1, mark, 6.0) == SECOND_NS
    mark = meter.start(1, 100.0)
    assert meter.end(1, mark, 101.0) == SECOND_NS


def test_what_a_division_leaves_over_is_given_to_somebody() -> None:
    meter = GpuMeter()
    marks = [meter.start(1, 0.0) for _ in range(3)]
    shares = [meter.end(1, mark, 1e-8) for mark in marks]
    assert sorted(shares) == [3, 3, 4]


def test_shares_sum_to_the_busy_time_also_where_the_replica_is_never_idle() -> None:
    meter, shares = GpuMeter(), 0
    mark = meter.start(7, 0.0)
    for second in range(1, 2001):
        following = meter.start(3 + second % 11, second - 0.25)
        shares += meter.end(7 if second == 1 else 3 + (second - 1) % 11, mark, float(second))
        mark = following
    # The one that is there alone has earned all but what it shares of the last quarter.
    left = meter.end(3 + 2000 % 11, mark, 2000.0)
    assert shares + left == 2000 * SECOND_NS


def test_the_part_of_others_is_not_shared_out() -> None:
    meter = GpuMeter()
    mark = meter.start(10, 0.0)
    meter.set_others(30, 1.0)
    assert meter.weight == 10
    meter.set_others(0, 3.0)
    # 1 s alone, 2 s of which a quarter is its own, 1 s alone.
    assert meter.end(10, mark, 4.0) == 2_500_000_000


def test_others_alone_cost_nobody_anything() -> None:
    meter = GpuMeter()
    meter.set_others(30, 1.0)
    mark = meter.start(10, 5.0)
    assert meter.end(10, mark, 9.0) == SECOND_NS


def test_time_told_late_or_of_a_clock_that_fell_back_is_not_shared_twice() -> None:
    meter = GpuMeter()
    first = meter.start(1, 10.0)
    second = meter.start(1, 9.0)
    assert meter.end(1, first, 11.0) + meter.end(1, second, 10.5) == SECOND_NS


def test_another_number_of_gpus_counts_from_then_on() -> None:
    meter = GpuMeter(gpus=1)
    mark = meter.start(1, 0.0)
    meter.set_gpus(0.5, 2.0)
    assert meter.end(1, mark, 4.0) == 3 * SECOND_NS


def test_no_work_is_no_weight_of_none() -> None:
    assert weight_of(0.0) == 1
    assert weight_of(100.0) == 100 * weight_of(1.0)


@pytest.mark.parametrize(
    ("amount", "weights", "parts"),
    [
        pytest.param(10, [1, 1, 1], [4, 3, 3], id="ties go to the first"),
        pytest.param(10, [1, 2, 7], [1, 2, 7], id="exact"),
        pytest.param(7, [3, 0, 2], [4, 0, 3], id="the largest remainder gets the rest"),
        pytest.param(0, [1, 1], [0, 0], id="nothing"),
        pytest.param(5, [9], [5], id="one gets all"),
    ],
)
def test_split(amount: int, weights: list[int], parts: list[int]) -> None:
    assert split(amount, weights) == parts
