"""Scale-out: exact laws are recovered, knees and unlike points found, noise is let pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.measure.scaling import ScalePoint, UniversalLaw, fit_law, scaling

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)


def law(contention: float, coherency: float, per_replica: float = 100.0) -> UniversalLaw:
    return UniversalLaw(
        per_replica=per_replica,
        contention_ratio=contention,
        coherency_ratio=coherency,
        error_ratio=0.0,
    )


def points(of: UniversalLaw, counts: tuple[int, ...] = COUNTS) -> list[ScalePoint]:
    return [ScalePoint(replicas=n, throughput=of.throughput(n)) for n in counts]


@given(
    contention=st.sampled_from([0.0, 0.01, 0.1, 0.5]),
    coherency=st.sampled_from([0.0, 1e-4, 0.01, 0.1]),
    per_replica=st.floats(0.01, 1e5),
)
def test_an_exact_law_is_recovered(contention: float, coherency: float, per_replica: float) -> None:
    found = fit_law(points(law(contention, coherency, per_replica)))

    assert found.per_replica == pytest.approx(per_replica, rel=1e-6)
    assert found.contention_ratio == pytest.approx(contention, abs=1e-7)
    assert found.coherency_ratio == pytest.approx(coherency, abs=1e-7)
    assert found.error_ratio == pytest.approx(0.0, abs=1e-7)


def test_the_highest_throughput_is_that_of_all_numbers_tried() -> None:
    for contention, coherency in ((0.05, 0.01), (0.0, 0.003), (0.9, 0.5), (0.2, 0.1)):
        of = law(contention, coherency)
        tried = max(of.throughput(n) for n in range(1, 200))
        assert of.throughput_max() == pytest.approx(tried)


def test_without_coherency_throughput_has_a_limit_or_none() -> None:
    assert law(0.1, 0.0).replicas_best() is None
    assert law(0.1, 0.0).throughput_max() == pytest.approx(1000.0)
    assert law(0.0, 0.0).throughput_max() is None


def test_noise_does_not_make_a_coefficient_negative() -> None:
    generator = np.random.default_rng(1)
    for _ in range(50):
        noisy = [
            ScalePoint(replicas=n, throughput=100.0 * n * generator.lognormal(0.0, 0.05))
            for n in COUNTS
        ]
        found = fit_law(noisy)
        assert found.contention_ratio >= 0.0
        assert found.coherency_ratio >= 0.0
        assert found.per_replica == pytest.approx(100.0, rel=0.15)


def test_points_known_well_weigh_more() -> None:
    spoiled = [
        *(ScalePoint(replicas=n, throughput=100.0 * n, throughput_sd=0.1 * n) for n in (1, 2, 4)),
        ScalePoint(replicas=8, throughput=400.0, throughput_sd=400.0),
    ]
    assert fit_law(spoiled).throughput(4) == pytest.approx(400.0, rel=0.01)


def test_the_knee_is_the_last_number_before_added_replicas_bring_less_than_half() -> None:
    found = scaling(
        [
            ScalePoint(replicas=n, throughput=x)
            for n, x in ((1, 100.0), (2, 198.0), (3, 290.0), (4, 320.0), (5, 300.0))
        ]
    )

    assert found.knee == 3
    assert [p.marginal_ratio for p in found.points] == pytest.approx([None, 0.98, 0.92, 0.3, -0.2])
    assert found.sublinear == (3, 4, 5)[-len(found.sublinear) :]


def test_linear_growth_has_no_knee_and_no_unlike_points() -> None:
    found = scaling(points(law(0.0, 0.0)))

    assert (found.knee, found.superlinear, found.sublinear) == (None, (), ())
    assert [p.efficiency_ratio for p in found.points] == pytest.approx([1.0] * len(COUNTS))


def test_points_beyond_linear_are_told_only_beyond_noise() -> None:
    def point(n: int, throughput: float, sd: float) -> ScalePoint:
        return ScalePoint(replicas=n, throughput=throughput, throughput_sd=sd, latency_s=0.1 * n)

    sure = scaling([point(1, 100.0, 1.0), point(2, 230.0, 1.0), point(4, 330.0, 2.0)])
    unsure = scaling([point(1, 100.0, 15.0), point(2, 230.0, 15.0), point(4, 330.0, 60.0)])

    assert (sure.superlinear, sure.sublinear) == ((2,), (4,))
    assert (unsure.superlinear, unsure.sublinear) == ((), ())
    assert sure.points[2].latency_ratio == pytest.approx(4.0)


def test_two_points_have_efficiency_and_no_law() -> None:
    found = scaling(
        [ScalePoint(replicas=2, throughput=150.0), ScalePoint(replicas=1, throughput=100.0)]
    )

    assert [p.replicas for p in found.points] == [1, 2]
    assert found.points[1].efficiency_ratio == 0.75
    assert found.law is None


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param([], id="no points"),
        pytest.param([(1, 1.0), (1, 2.0)], id="one number twice"),
        pytest.param([(0, 1.0)], id="no replicas"),
        pytest.param([(1, 0.0)], id="no throughput"),
        pytest.param([(1, float("nan"))], id="no number"),
    ],
)
def test_points_that_cannot_be_are_refused(wrong: list[tuple[int, float]]) -> None:
    with pytest.raises(ValueError, match=r"got|throughput"):
        scaling([ScalePoint(replicas=n, throughput=x) for n, x in wrong])
