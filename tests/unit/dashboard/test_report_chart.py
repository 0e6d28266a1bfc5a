"""Charts of reports: axes, bands and units."""

from __future__ import annotations

import pytest

from mileage.dashboard.report_chart import band, latency_range, line, log_axis, time_unit


def test_latencies_of_one_size_have_an_axis_from_zero() -> None:
    assert latency_range([0.1, None, 0.2], 0.25)["range"] == [0.0, pytest.approx(0.27)]


def test_a_target_far_above_does_not_flatten_what_was_met() -> None:
    assert latency_range([0.01, 0.02], 2.0)["range"] == [0.0, pytest.approx(0.0216)]


def test_latencies_of_many_sizes_have_a_logarithmic_axis_that_holds_them_all() -> None:
    axis = latency_range([0.01, 20.0, None, 0.0], None)
    assert axis["type"] == "log"
    low, high = axis["range"]
    assert 10**low < 0.01
    assert 10**high > 20.0


@pytest.mark.parametrize(
    ("low_s", "high_s", "labels"),
    [
        pytest.param(0.01, 20.0, ["10ms", "100ms", "1s", "10s"], id="decades"),
        pytest.param(0.004, 0.06, ["5ms", "10ms", "20ms", "50ms"], id="between them, too"),
        pytest.param(3e-5, 2e-4, ["50us", "100us", "200us"], id="microseconds"),
    ],
)
def test_labels_are_few_and_round(low_s: float, high_s: float, labels: list[str]) -> None:
    assert log_axis(low_s, high_s)["ticktext"] == labels


def test_nothing_known_leaves_the_axis_to_the_chart() -> None:
    assert "range" not in latency_range([None, None], 2.0)


def test_a_band_bridges_what_is_not_known() -> None:
    lower, upper = band([0, 1, 2], [1.0, None, 3.0], [2.0, None, 4.0], "c1")
    assert lower["x"] == upper["x"] == [0, 2]
    assert (lower["y"], upper["y"]) == ([1.0, 3.0], [2.0, 4.0])


def test_single_points_are_seen() -> None:
    assert line("p50", [0, 1], [None, 1.0], "c1")["mode"] == "lines+markers"
    assert line("p50", list(range(9)), [1.0] * 9, "c1")["mode"] == "lines"


def test_names_are_escaped_for_a_library_that_reads_markup() -> None:
    assert line("<a href=x>", [0], [1.0], "c1")["name"] == "&lt;a href=x&gt;"


@pytest.mark.parametrize(
    ("duration_s", "unit"),
    [(20.0, "seconds"), (600.0, "minutes"), (4 * 3600.0, "hours"), (9e5, "days")],
)
def test_time_is_in_the_unit_that_it_is_read_best_in(duration_s: float, unit: str) -> None:
    assert time_unit(duration_s)[1] == unit
