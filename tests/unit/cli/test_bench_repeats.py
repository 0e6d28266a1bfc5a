"""Points that are measured several times: intervals, faults, and the order of runs."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.cli.bench_repeats import point_faults, repeated, repeated_figures, run_orders


def test_the_interval_of_runs_is_students() -> None:
    found = repeated([1.0, 2.0, 3.0])
    assert found is not None
    # t of 2 degrees of freedom is 4.303; the standard error is 1 / sqrt(3).
    assert (found.mean, found.high) == pytest.approx((2.0, 2.0 + 4.3027 / 3**0.5), abs=1e-4)
    assert found.low is not None
    assert found.mean - found.low == pytest.approx(2.4841, abs=1e-3)


def test_a_single_run_has_no_interval() -> None:
    found = repeated([1.5])
    assert found is not None
    assert (found.mean, found.low, found.high) == (1.5, None, None)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([], id="no runs"),
        pytest.param([1.0, None], id="one run lacks it"),
    ],
)
def test_a_figure_that_is_not_whole_is_none(values: list[float | None]) -> None:
    assert repeated(values) is None


def test_figures_are_found_in_documents() -> None:
    documents = [{"ttft_s": {"p50": value}} for value in (1.0, 3.0)]
    found = repeated_figures(documents, ["ttft_s.p50", "itl_s.p50"])
    assert found["ttft_s.p50"] is not None
    assert found["ttft_s.p50"].mean == 2.0
    assert found["itl_s.p50"] is None


def run(**changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "error": None,
        "requests": 100,
        "requests_ok": 100,
        "requests_failed": {},
        "generator": {"limited": False, "reason": None},
    }
    return {**usual, **changes}


@pytest.mark.parametrize(
    ("documents", "faults"),
    [
        pytest.param([run(), run()], [], id="good runs"),
        pytest.param(
            [run(), run(generator={"limited": True, "reason": "late"})],
            ["the load generator was the limit: late"],
            id="one run that measured the generator spoils the point",
        ),
        pytest.param(
            [run(requests_ok=98, requests_failed={"cut": 2})],
            ["more than 1% of the requests failed"],
            id="failures are quick, and would make a point look good",
        ),
        pytest.param(
            [run(requests_ok=99, requests_failed={"cut": 1})], [], id="a single failure is borne"
        ),
        pytest.param(
            [run(requests_ok=0, requests_failed={"cut": 100})],
            ["no request was answered well"],
            id="nothing came",
        ),
        pytest.param([run(requests=0, requests_ok=0)], ["no request was due in the measured time"],
                     id="nothing was sent"),
        pytest.param([run(error="down")] * 2, ["down"], id="told once"),
    ],
)  # fmt: skip
def test_faults_of_a_point(documents: list[dict[str, Any]], faults: list[str]) -> None:
    assert point_faults(documents) == faults


def test_every_pass_has_every_point_once() -> None:
    for order in run_orders([[0, 1, 2], [3, 4]], 7, seed=3):
        assert sorted(order) == [0, 1, 2, 3, 4]


def test_passes_come_in_pairs_that_are_each_others_reverse() -> None:
    orders = run_orders([[0, 1], [2, 3]], 4, seed=1)
    assert orders[0] == [0, 1, 2, 3]
    assert orders[1] == orders[0][::-1]
    assert orders[3] == orders[2][::-1]


def test_points_of_a_group_stay_together() -> None:
    for order in run_orders([[0, 1, 2], [3, 4, 5]], 6, seed=5):
        assert {frozenset(order[:3]), frozenset(order[3:])} == {
            frozenset({0, 1, 2}),
            frozenset({3, 4, 5}),
        }
