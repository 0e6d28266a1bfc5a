"""The A/B benchmark: what its runs are, what it makes of them, and the server's times."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from statistics import fmean, pstdev

import pytest

from benchmarks.ab import allowed, figures_of, tasks_of
from benchmarks.support.ab_runs import PLAN, AbOutcome, AbTask, Kind
from benchmarks.support.ab_server import MOOD_SPREAD, SPREAD, Mood, service_s


def outcome(scale: float, verdict: str, *, kind: Kind = "interleaved", seed: int = 1) -> AbOutcome:
    return AbOutcome(
        task=AbTask(scale=scale, kind=kind, seed=seed),
        verdict=verdict,
        text="as it is",
        pairs=12,
        ratio=scale,
        ci95=(scale * 0.9, scale * 1.1),
        ci95_alone=(scale * 0.95, scale * 1.05),
        detectable_ratio=0.09,
        error=None,
    )


@pytest.mark.parametrize(
    ("runs", "count"),
    [
        pytest.param(0, 0, id="none"),
        pytest.param(20, 4, id="20: P(X <= 3) = 0.984, P(X <= 4) = 0.997"),
        pytest.param(200, 18, id="200"),
    ],
)
def test_as_many_false_verdicts_are_borne_as_chance_gives(runs: int, count: int) -> None:
    assert allowed(runs, 0.05) == count


def test_runs_have_seeds_of_their_own_and_all_kinds() -> None:
    tasks = tasks_of(equal=30, large=9, small=24)
    assert len({task.seed for task in tasks}) == 63
    kinds = Counter((task.scale, task.kind) for task in tasks)
    for kind in ("interleaved", "mirrored", "closed"):
        assert (kinds[1.0, kind], kinds[1.2, kind]) == (10, 3)
    assert kinds[1.05, "interleaved"] == 24


def test_counts_are_of_runs_with_a_verdict() -> None:
    found = figures_of(
        [
            *(outcome(1.0, "no_difference") for _ in range(18)),
            outcome(1.0, "better", kind="closed"),
            outcome(1.0, "invalid"),
            outcome(1.2, "worse"),
            outcome(1.2, "no_difference"),
            outcome(1.05, "worse"),
            outcome(1.05, "better"),
        ]
    )
    assert (found["aa_runs"], found["aa_false"], found["aa_false_allowed"]) == (19, 1, 4)
    assert found["aa_false_by_kind"] == {"closed": 1}
    assert found["runs_invalid"] == 1
    assert (found["large_found_ratio"], found["small_found_ratio"]) == (0.5, 0.5)
    assert found["small_wrong_way"] == 1
    assert found["large_ratio_mean"] == pytest.approx(1.2)


def test_the_power_that_is_stated_is_that_of_the_plan() -> None:
    found = figures_of([outcome(1.05, "worse")])
    stated = found["small_power_stated"]
    assert isinstance(stated, float)
    # Intervals of +-5 % at 12 pairs: a change of 5 % lies where half of the runs see it, or less,
    # as looks before the end share the level.
    assert 0.4 < stated < 0.55
    assert PLAN.blocks_max == 12


def test_no_runs_have_no_figures() -> None:
    found = figures_of([])
    assert found["small_power_stated"] is found["large_found_ratio"] is None
    assert found["aa_false_over"] == 0


def test_service_times_are_of_the_request_and_in_proportion() -> None:
    bodies = [f"request {n}".encode() for n in range(4000)]
    logs = [math.log(service_s(body, 1.0)) for body in bodies]
    assert service_s(bodies[0], 1.2) == pytest.approx(1.2 * service_s(bodies[0], 1.0))
    assert pstdev(logs) == pytest.approx(SPREAD, rel=0.05)
    assert fmean(logs) == pytest.approx(math.log(0.2), abs=0.02)


def test_a_mood_lasts_and_comes_around() -> None:
    mood = Mood("7", start_s=50.0)
    logs = [math.log(mood.at(50.0 + 0.2 * n + 0.01)) for n in range(5000)]
    assert [mood.at(50.3), Mood("7", start_s=0.0).at(0.3)] == [mood.at(50.25)] * 2
    assert pstdev(logs) == pytest.approx(MOOD_SPREAD, rel=0.1)
    follows = fmean(x * y for x, y in itertools.pairwise(logs)) / fmean(x * x for x in logs)
    assert follows == pytest.approx(0.8, abs=0.05)
