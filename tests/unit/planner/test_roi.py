"""Roi: by hand."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

from mileage.core.errors import ConfigError
from mileage.planner.roi import Business, Roi, Serving, roi

START = dt.date(2027, 1, 31)
BASELINE = Serving(name="api", usd_per_request=0.142)
CANDIDATE = Serving(name="own", usd_per_request=0.059)
VOLUME = Business(requests_per_month=100_000, one_time_usd=20_000)


def worked_out(
    baseline: dict[str, Any] | None = None,
    candidate: dict[str, Any] | None = None,
    **business: Any,
) -> Roi:
    return roi(
        msgspec.structs.replace(BASELINE, **(baseline or {})),
        msgspec.structs.replace(CANDIDATE, **(candidate or {})),
        msgspec.structs.replace(VOLUME, **business),
        START,
    )


def test_by_hand() -> None:
    found = worked_out()
    # 100,000 x (0.142 - 0.059) = 8,300 a month; 20,000 / 8,300 = 2.41 months.
    assert found.baseline_usd_per_month == pytest.approx(14_200)
    assert found.candidate_usd_per_month == pytest.approx(5_900)
    assert found.saving_usd_per_month == pytest.approx(8_300)
    assert found.break_even_months == pytest.approx(2.4096, rel=1e-4)
    # Two months after 31 January, and 0.41 of March's 31 days.
    assert found.break_even_date == dt.date(2027, 4, 13)
    assert found.saving_usd_first_year == pytest.approx(12 * 8_300 - 20_000)
    assert found.return_ratio_first_year == pytest.approx(3.98)


def test_people_and_errors_are_part_of_a_request() -> None:
    found = worked_out(
        {"accuracy_ratio": 0.95, "review_ratio": 0.1},
        {"accuracy_ratio": 0.9, "review_ratio": 0.3},
        review_usd=0.5,
        error_usd=2.0,
    )
    assert found.baseline_usd_per_request == pytest.approx(0.142 + 0.1 * 0.5 + 0.05 * 2)
    assert found.candidate_usd_per_request == pytest.approx(0.059 + 0.3 * 0.5 + 0.1 * 2)
    # The cheaper one to serve is the dearer one: 0.292 against 0.409.
    assert found.saving_usd_per_month == pytest.approx(-11_700)
    assert found.break_even_months is None
    assert found.break_even_date is None


def test_what_a_month_costs_counts_once_a_month() -> None:
    found = worked_out(candidate={"usd_per_month": 8_000.0})
    assert found.saving_usd_per_month == pytest.approx(300)
    assert found.break_even_months == pytest.approx(20_000 / 300)


def test_growth_brings_it_earlier() -> None:
    found = worked_out(growth_ratio_per_month=0.5)
    # 8,300, then 12,450: 20,750 after two months.
    assert found.break_even_months == pytest.approx(1 + 11_700 / 12_450)
    shrinking = worked_out(growth_ratio_per_month=-0.5)
    # 8,300 x 2 is all that will ever come.
    assert shrinking.break_even_months is None


def test_a_change_that_costs_nothing_pays_at_once() -> None:
    found = worked_out(one_time_usd=0.0)
    assert (found.break_even_months, found.break_even_date) == (0.0, START)
    assert found.return_ratio_first_year is None
    dearer = worked_out(candidate={"usd_per_request": 0.2}, one_time_usd=0.0)
    assert dearer.break_even_months is None


def test_what_it_hangs_on_most_comes_first() -> None:
    found = worked_out()
    assert [each.input for each in found.sensitivity] == [
        "baseline.usd_per_request",
        "requests_per_month",
        "candidate.usd_per_request",
        "one_time_usd",
    ]
    first = found.sensitivity[0]
    # 0.142 less a fifth: 0.1136 - 0.059 = 0.0546 each.
    assert first.saving_usd_per_month == pytest.approx((5_460, 11_140))
    assert first.break_even_months[0] == pytest.approx(20_000 / 5_460)
    last = found.sensitivity[-1]
    assert last.swing_usd == 0.0
    assert last.break_even_months == pytest.approx((16_000 / 8_300, 24_000 / 8_300))


def test_ratios_do_not_exceed_one() -> None:
    found = worked_out({"accuracy_ratio": 0.95}, {"accuracy_ratio": 0.9}, error_usd=1.0)
    by_name = {each.input: each for each in found.sensitivity}
    assert by_name["baseline.accuracy_ratio"].high == 1.0


def test_an_unknown_accuracy_is_asked_for_where_errors_cost() -> None:
    with pytest.raises(ConfigError, match=r"own\.accuracy_ratio"):
        worked_out({"accuracy_ratio": 0.9}, error_usd=1.0)


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        pytest.param({"requests_per_month": -1}, "requests_per_month", id="fewer than none"),
        pytest.param({"review_usd": float("nan")}, "review_usd", id="no number"),
        pytest.param({"growth_ratio_per_month": 3}, "growth_ratio_per_month", id="fourfold"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        Business(**{"requests_per_month": 1.0, **fields})


def test_dates_beyond_the_calendar_are_left_out() -> None:
    late = roi(BASELINE, CANDIDATE, VOLUME, dt.date(9999, 12, 1))
    assert late.break_even_months is not None
    assert late.break_even_date is None
