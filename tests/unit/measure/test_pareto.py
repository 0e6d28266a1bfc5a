"""Pareto front against brute force, with ties and holes; the three picks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.measure.pareto import Objective, Picks, non_dominated, picks

LATENCY = Objective(name="ttft_s", sense="min")
RATE = Objective(name="tokens_per_s", sense="max")
COST = Objective(name="usd", sense="min")

values = st.one_of(st.none(), st.integers(0, 4).map(float), st.just(math.nan))
points = st.lists(
    st.fixed_dictionaries({"ttft_s": values, "tokens_per_s": values, "usd": values}), max_size=20
)
senses = st.lists(st.sampled_from([LATENCY, RATE, COST]), min_size=1, max_size=3, unique=True)


def brute_force(points: list[dict[str, float | None]], objectives: list[Objective]) -> list[bool]:
    def costs(point: dict[str, float | None]) -> list[float] | None:
        found = [point[o.name] for o in objectives]
        if any(v is None or math.isnan(v) for v in found):
            return None
        signs = [1.0 if o.sense == "min" else -1.0 for o in objectives]
        return [s * v for s, v in zip(signs, found, strict=True) if v is not None]

    def beats(a: list[float], b: list[float]) -> bool:
        return a != b and all(x <= y for x, y in zip(a, b, strict=True))

    rows = [costs(point) for point in points]
    return [
        row is not None and not any(other is not None and beats(other, row) for other in rows)
        for row in rows
    ]


@given(points, senses)
def test_the_front_is_that_of_brute_force(
    points: list[dict[str, float | None]], objectives: list[Objective]
) -> None:
    assert non_dominated(points, objectives) == brute_force(points, objectives)


def test_equal_points_are_on_the_front_together() -> None:
    point = {"ttft_s": 1.0, "tokens_per_s": 5.0}
    assert non_dominated([point, point], [LATENCY, RATE]) == [True, True]


def test_a_point_without_an_objective_is_off_the_front() -> None:
    assert non_dominated([{}, {"ttft_s": 9.0}], [LATENCY]) == [False, True]


SWEEP = [
    {"ttft_s": 0.1, "tokens_per_s": 100.0},
    {"ttft_s": 0.2, "tokens_per_s": 800.0},
    {"ttft_s": 1.0, "tokens_per_s": 1000.0},
    {"ttft_s": 1.1, "tokens_per_s": 900.0},
]


def test_the_picks_are_the_ends_of_the_front_and_its_bend() -> None:
    found = picks(SWEEP, [LATENCY, RATE], latency="ttft_s", throughput="tokens_per_s")

    assert found == Picks(low_latency=0, balanced=1, throughput=2)


def test_of_equally_fast_points_the_better_one_in_the_rest_is_picked() -> None:
    sweep = [
        {"ttft_s": 0.1, "tokens_per_s": 100.0, "usd": 9.0},
        {"ttft_s": 0.1, "tokens_per_s": 100.0, "usd": 1.0},
        {"ttft_s": 0.5, "tokens_per_s": 500.0, "usd": 5.0},
    ]
    found = picks(sweep, [LATENCY, RATE, COST], latency="ttft_s", throughput="tokens_per_s")

    assert (found.low_latency, found.throughput) == (1, 2)


@pytest.mark.parametrize(
    ("halves", "expected"),
    [
        pytest.param([0.0, 0.0, 0.0], 2, id="exact: the most"),
        pytest.param([None, None, None], 2, id="of a noise that is not known nothing is forgiven"),
        pytest.param([0.0, 3.0, 4.0], 1, id="by as much as both may be off together: the sooner"),
        pytest.param([0.0, 3.0, 3.9], 2, id="by more than that: the most"),
        pytest.param([9999.0, 0.0, 0.0], 2, id="a tenth less is not as much, however noisy"),
    ],
)
def test_what_is_gained_within_the_noise_is_worth_no_latency(
    halves: list[float | None], expected: int
) -> None:
    sweep: list[dict[str, float | None]] = [
        {"ttft_s": 0.1, "tokens_per_s": 800.0},
        {"ttft_s": 0.2, "tokens_per_s": 995.0},
        {"ttft_s": 1.0, "tokens_per_s": 1000.0},
    ]
    found = picks(sweep, [LATENCY, RATE], latency="ttft_s", throughput="tokens_per_s", noise=halves)
    assert found.throughput == expected


@given(points, st.floats(0.0, 3.0))
def test_no_other_point_within_the_noise_is_better_in_the_rest(
    points: list[dict[str, float | None]], half: float
) -> None:
    noise = [half] * len(points)
    objectives = [LATENCY, RATE]
    found = picks(points, objectives, latency="ttft_s", throughput="tokens_per_s", noise=noise)
    if found.throughput is None:
        return
    front = [p for p, on in zip(points, non_dominated(points, objectives), strict=True) if on]
    best = max(p["tokens_per_s"] or 0.0 for p in front)
    slack = min(0.1 * best, math.hypot(half, half))
    near = [p for p in front if best - (p["tokens_per_s"] or 0.0) <= slack]
    chosen = points[found.throughput]
    assert chosen in near
    assert chosen["ttft_s"] == min(p["ttft_s"] or 0.0 for p in near)


@given(points)
def test_picks_are_on_the_front(points: list[dict[str, float | None]]) -> None:
    objectives = [LATENCY, RATE]
    front = non_dominated(points, objectives)
    found = picks(points, objectives, latency="ttft_s", throughput="tokens_per_s")

    for pick in (found.low_latency, found.throughput, found.balanced):
        assert front[pick] if pick is not None else not any(front)


def test_names_and_objectives_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="objective"):
        non_dominated([{}], [])
    with pytest.raises(ValueError, match="'usd' is no objective"):
        picks(SWEEP, [LATENCY, RATE], latency="usd", throughput="tokens_per_s")
