"""The page of a sweep: what its charts join and name."""

from __future__ import annotations

from mileage.dashboard.report_chart import Chart
from mileage.dashboard.sweep_report import FrontPoint, sweep_chart


def front(
    label: str, ttft_s: float, throughput: float, *, picks: tuple[str, ...] = ()
) -> FrontPoint:
    return FrontPoint(
        label=label, ttft_s=ttft_s, throughput=throughput, itl_s=0.01, kind=0, picks=picks
    )


def drawn(*points: FrontPoint) -> tuple[list[float], dict[str, str]]:
    """x of what the line joins, and names that are written, by label."""
    chart: Chart = sweep_chart(points, "tokens", "TTFT", "throughput", "ttft_s")
    lines = [trace["x"] for trace in chart["traces"] if trace["mode"] == "lines"]
    (marks,) = [t for t in chart["traces"] if t["mode"] != "lines" and t["name"] == "on the front"]
    return (lines[0] if lines else []), dict(zip(marks["hovertext"], marks["text"], strict=True))


def test_a_line_joins_only_what_is_not_beaten_in_these_two_figures() -> None:
    joined, _ = drawn(front("a", 0.1, 10), front("b", 0.3, 20), front("c", 0.2, 30))
    assert joined == [30, 10]


def test_points_in_one_place_have_one_name_and_a_pick_keeps_its_own() -> None:
    _, names = drawn(
        front("a", 0.1, 10), front("b", 0.101, 10.1, picks=("balanced",)), front("c", 0.9, 90)
    )
    assert names == {"a": "", "b, balanced": "b", "c": "c"}


def test_a_name_is_text() -> None:
    _, names = drawn(front("<b>", 0.1, 10))
    assert names == {"&lt;b&gt;": "&lt;b&gt;"}
