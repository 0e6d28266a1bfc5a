"""Metric families: bounded series, snapshots that are copies, merging, quantiles of buckets."""

from __future__ import annotations

import msgspec
import pytest

from mileage.measure.metrics import Counter, FamilySnapshot, Gauge, Histogram, merge, quantile


def test_a_counter_adds_by_labels() -> None:
    counter = Counter("c", "help", ("model",))
    counter.add(("a",))
    counter.add(("a",), 2)
    counter.add(("b",), 5)
    assert counter.values == {("a",): 3, ("b",): 5}


@pytest.mark.parametrize("kind", [Counter, Gauge])
def test_series_past_the_bound_are_other(kind: type[Counter] | type[Gauge]) -> None:
    family = kind("f", "help", ("x", "y"), series_max=2)
    for number in range(5):
        if isinstance(family, Counter):
            family.add((str(number), "y"))
        else:
            family.set(number, (str(number), "y"))
    assert set(family.values) == {("0", "y"), ("1", "y"), ("other", "other")}
    if isinstance(family, Counter):
        assert sum(family.values.values()) == 5, "nothing is lost"


def test_a_histogram_counts_up_to_and_with_each_bound() -> None:
    histogram = Histogram("h", "help", bounds=(1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    histogram.observe(0.0, count=3)
    (counted,) = histogram.values.values()
    assert counted.counts == [5, 2, 1]
    assert counted.count == 8
    assert counted.sum == pytest.approx(7.5)


def test_a_histogram_past_its_bound_of_series_loses_nothing() -> None:
    histogram = Histogram("h", "help", ("x",), bounds=(1.0,), series_max=1)
    for label in "abc":
        histogram.observe(0.5, (label,))
    assert {k: v.count for k, v in histogram.values.items()} == {("a",): 1, ("other",): 2}


def test_bounds_must_increase() -> None:
    with pytest.raises(ValueError, match="increase"):
        Histogram("h", "help", bounds=(2.0, 1.0))


def families(amount: int) -> list[FamilySnapshot]:
    counter, gauge = Counter("c", "help", ("x",)), Gauge("g", "help")
    histogram = Histogram("h", "help", bounds=(1.0,))
    counter.add(("a",), amount)
    gauge.set(amount)
    histogram.observe(0.5, count=amount)
    return [family.snapshot() for family in (counter, gauge, histogram)]


def test_families_of_several_processes_add_up_and_stay_as_they_were() -> None:
    one, two = families(1), families(2)
    counter, gauge, histogram = merge([*one, *two])
    assert counter.numbers == {("a",): 3}
    assert gauge.numbers == {(): 3}
    assert histogram.histograms[()].counts == [3, 0]
    assert one == families(1)
    assert two == families(2)


def test_families_that_do_not_fit_are_refused() -> None:
    other = Histogram("h", "help", bounds=(2.0,))
    with pytest.raises(ValueError, match="h: families of one name differ"):
        merge([*families(1), other.snapshot()])


def test_a_snapshot_travels_and_does_not_change_afterwards() -> None:
    histogram = Histogram("h", "help", bounds=(1.0,))
    histogram.observe(0.5)
    snapshot = histogram.snapshot()
    histogram.observe(0.5)
    assert snapshot.histograms[()].count == 1
    data = msgspec.msgpack.encode(snapshot)
    assert msgspec.msgpack.decode(data, type=FamilySnapshot) == snapshot


@pytest.mark.parametrize(
    ("counts", "q", "expected"),
    [
        pytest.param([0, 0, 0], 0.5, None, id="nothing observed"),
        pytest.param([10, 0, 0], 0.5, 0.5, id="middle of the first bucket"),
        pytest.param([0, 10, 0], 0.5, 1.5, id="middle of the second"),
        pytest.param([5, 5, 0], 1.0, 2.0, id="the highest"),
        pytest.param([5, 5, 0], 0.0, 0.0, id="the lowest"),
        pytest.param([1, 0, 99], 0.99, 2.0, id="above all bounds: at least the highest"),
    ],
)
def test_quantiles_are_linear_inside_a_bucket(
    counts: list[int], q: float, expected: float | None
) -> None:
    assert quantile((1.0, 2.0), counts, q) == expected
