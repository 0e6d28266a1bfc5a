"""The page of an A/B run: the chart of its intervals."""

from __future__ import annotations

import pytest

from mileage.dashboard.ab_report import AbInterval, AbPage, ab_page, interval_chart


def interval(low: float, ratio: float, high: float, name: str = "ttft_p99_s") -> AbInterval:
    return AbInterval(name=name, ratio=ratio, low=low, high=high)


def test_a_line_stands_where_the_arms_are_equal() -> None:
    (shape,) = interval_chart([interval(1.1, 1.2, 1.3)])["shapes"]
    assert (shape["x0"], shape["x1"], shape["yref"]) == (1.0, 1.0, "paper")


@pytest.mark.parametrize(
    ("intervals", "low", "high"),
    [
        pytest.param([interval(1.1, 1.2, 1.3)], 1.0, 1.3, id="all above 1"),
        pytest.param([interval(0.6, 0.7, 0.8)], 0.6, 1.0, id="all below 1"),
        pytest.param([interval(0.9, 1.0, 1.1), interval(0.5, 2.0, 4.0)], 0.5, 4.0, id="around 1"),
        pytest.param([interval(0.1, 2.0, 1e300)], 0.1, 11.0, id="an end that says nothing"),
        pytest.param([interval(0.1, 20.0, 1e300)], 0.1, 20.0, id="a ratio that is beyond"),
    ],
)
def test_the_axis_holds_1_and_all_that_can_be_read(
    intervals: list[AbInterval], low: float, high: float
) -> None:
    begin, end = interval_chart(intervals)["xaxis"]["range"]
    assert begin < low < high < end
    assert end - begin == pytest.approx(1.12 * (high - low))


def test_intervals_of_no_length_have_an_axis() -> None:
    begin, end = interval_chart([interval(1.0, 1.0, 1.0)])["xaxis"]["range"]
    assert begin < 1.0 < end


def test_intervals_stand_in_the_order_of_the_table() -> None:
    chart = interval_chart([interval(1, 1, 1, "first"), interval(1, 1, 1, "second")])
    assert chart["traces"][0]["y"] == ["second", "first"]  # the axis goes upwards


def test_a_page_without_intervals_has_no_chart() -> None:
    page = AbPage(
        title="A/B run",
        verdict="No verdict.",
        facts=(),
        columns=("a", "b"),
        rows=(),
        intervals=(),
        footer="",
    )
    assert "with its interval" not in ab_page(page)
