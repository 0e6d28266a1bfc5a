"""Batch means: as Student's interval for independent values, wider for those that depend."""

from __future__ import annotations

import math
import statistics
from random import Random

import pytest

from mileage.measure.batch_means import batch_half
from mileage.measure.distributions import t_critical


def test_of_batches_of_equal_values_it_is_students_interval_of_them() -> None:
    means = [3.0, 5.0, 4.0, 6.0, 2.0, 5.0, 4.0, 4.0, 3.0, 7.0]
    values = [mean for mean in means for _ in range(3)]
    expected = t_critical(0.05, 9) * statistics.stdev(means) / math.sqrt(10)
    assert batch_half([*values, 99.0]) == pytest.approx(expected)  # the rest fills no batch


def test_too_few_values_tell_nothing() -> None:
    assert batch_half([1.0, 2.0] * 9 + [1.0]) is None
    assert batch_half([1.0] * 20) == 0.0


def test_it_holds_the_mean_of_values_that_depend_on_each_other() -> None:
    rng = Random(1)
    held = 0
    for _ in range(400):
        value, values = 0.0, []
        for _ in range(300):
            value = 0.7 * value + rng.gauss(0.0, 1.0)
            values.append(value)
        half = batch_half(values)
        assert half is not None
        held += abs(statistics.fmean(values)) <= half
    # Of 95 %, a little less as batches of 30 still depend on each other; independent values would
    # be taken for granted in 60 %.
    assert held >= 0.90 * 400


def test_a_level_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="level"):
        batch_half([1.0] * 20, level=1.0)
