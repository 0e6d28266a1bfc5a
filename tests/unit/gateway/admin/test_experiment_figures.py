"""What the arms did, out of the workers' totals."""

from __future__ import annotations

import pytest

from mileage.gateway.admin.experiment_figures import (
    ZERO,
    ArmFigures,
    LatencyFigures,
    figures_of,
    minus,
    plus,
)
from mileage.gateway.admin.experiment_report import arm_report
from mileage.measure.metrics import merge
from tests.support.toy_arms import ToyArms


def test_without_any_family_nothing_is_known() -> None:
    assert figures_of([]) == (ZERO, ZERO)
    report = arm_report(ZERO)
    assert (report.requests, report.error_ratio, report.target_met_ratio) == (0, None, None)
    assert (report.ttft_p50_s, report.e2e_p99_s, report.itl_p99_mean_s) == (None, None, None)
    assert (report.gpu_s, report.cost_usd) == (None, None)


def test_each_arm_has_its_own_totals_over_all_workers() -> None:
    one, other = ToyArms(), ToyArms()
    one.serve("a", 10, failed=1, took_s=0.2)
    other.serve("a", 5, took_s=0.2)
    other.serve("b", 7, failed=7)
    a, b = figures_of(merge([*one.families(), *other.families()]))
    assert a.requests == {"ok": 14, "failed": 1}
    assert (a.counted, a.failed, a.judged) == (15, 1, 14)
    assert a.ttft.mean_s == pytest.approx(0.2)
    assert a.output_tokens == 140
    assert (b.counted, b.failed, b.ttft.mean_s) == (7, 7, None)
    counts = a.counts()
    assert (counts.requests, counts.errors, counts.missed, sum(counts.e2e)) == (15, 1, 0, 14)


def test_requests_of_a_wash_out_do_not_count() -> None:
    arms = ToyArms()
    arms.serve("b", 4)
    arms.metrics.requests.add(("b", "washout"), 100)
    _, b = figures_of(arms.families())
    assert b.counted == 4
    assert arm_report(b).outcomes["washout"] == 100


def test_families_of_others_are_left_out() -> None:
    arms = ToyArms()
    arms.serve("a", 3)
    family = arms.families()[0]
    other = type(family)(
        name="mileage_requests_total",
        kind="counter",
        help="",
        labels=("arm", "outcome"),
        bounds=(),
        numbers={("a", "ok"): 99},
        histograms={},
    )
    assert figures_of([other])[0] == ZERO


def test_what_came_between_two_totals_and_both_together() -> None:
    arms = ToyArms()
    arms.serve("a", 10, failed=2)
    before = figures_of(arms.families())[0]
    arms.serve("a", 5, failed=1, took_s=1.0)
    now = figures_of(arms.families())[0]
    came = minus(now, before)
    assert (came.counted, came.failed) == (5, 1)
    assert came.ttft.mean_s == pytest.approx(1.0)
    assert plus(before, came).requests == now.requests
    assert plus(before, came).ttft.counts == now.ttft.counts
    assert minus(now, ZERO) == now
    assert plus(ZERO, now).e2e == now.e2e


def test_quantiles_are_those_of_the_buckets() -> None:
    figures = LatencyFigures((0.1, 0.2), (10, 10, 0), 3.0)
    assert figures.quantile_s(0.5) == pytest.approx(0.1)
    assert figures.mean_s == pytest.approx(0.15)
    assert LatencyFigures().quantile_s(0.5) is None


def test_the_report_is_for_people() -> None:
    arm = ArmFigures(
        requests={"ok": 8, "failed": 2, "cancelled": 0},
        errors={"status": 2, "timeout": 0},
        targets={"yes": 6, "no": 2},
        gpu_s=1.5,
    )
    report = arm_report(arm)
    assert (report.outcomes, report.errors) == ({"ok": 8, "failed": 2}, {"status": 2})
    assert (report.error_ratio, report.target_met_ratio) == (0.2, 0.75)
    assert report.gpu_s == 1.5
