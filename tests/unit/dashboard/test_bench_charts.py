"""Charts of a load run: what is drawn of sparse seconds, and which charts there are."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from mileage.core.slo import Slo
from mileage.dashboard.bench_charts import (
    Panel,
    distribution_panels,
    failure_panel,
    time_panels,
)
from mileage.measure.call_record import CallRecord
from mileage.measure.run_series import run_series
from mileage.measure.server_use import UseSample, UseSeries
from tests.support.call_records import answer, streamed

FIRST_S, GAP_S = 0.1, 0.02


def stream_at(at_s: float) -> CallRecord:
    """Three tokens, soon after it was due."""
    times = [at_s + FIRST_S + k * GAP_S for k in range(3)]
    return streamed(times, scheduled_s=at_s, taken_s=at_s + 0.001, output_tokens=3)


def panels_of(
    records: Sequence[CallRecord],
    *,
    use: UseSeries | None = None,
    slo: Slo | None = None,
    window: tuple[float, float] = (0.0, 10.0),
    zero_monotonic_s: float = 0.0,
) -> dict[str, Panel]:
    found = time_panels(
        run_series(records, start_s=0.0, end_s=10.0),
        use or UseSeries(),
        slo or Slo(),
        start_s=window[0],
        end_s=window[1],
        zero_monotonic_s=zero_monotonic_s,
    )
    return {panel.title: panel for panel in found}


def trace_of(panel: Panel, name: str) -> dict[str, Any]:
    traces: list[dict[str, Any]] = panel.chart["traces"]
    (found,) = [trace for trace in traces if trace.get("name") == name]
    return found


def test_seconds_that_stand_alone_are_points_and_those_in_a_row_a_line() -> None:
    records = [stream_at(at_s) for at_s in (0.2, 2.2, 3.2, 4.2, 9.2)]
    p50 = trace_of(panels_of(records)["Time to first token"], "p50")
    assert p50["y"][0] == pytest.approx(FIRST_S)
    assert p50["y"][1] is None
    assert p50["mode"] == "lines+markers"
    seen = [bool(size) for size in p50["marker"]["size"]]
    assert seen == [second in (0, 9) for second in range(10)]
    assert p50["marker"]["color"] == p50["line"]["color"]
    # An edge or a tint would show the points that are not to be seen.
    assert (p50["marker"]["opacity"], p50["marker"]["line"]["width"]) == (1.0, 0)


def test_edges_of_a_band_have_no_points() -> None:
    only = panels_of([stream_at(5.2)])["Time to first token"]
    edges = [trace for trace in only.chart["traces"] if not trace["line"]["width"]]
    assert len(edges) == 2
    for edge in edges:
        assert len(edge["y"]) == 1
        assert edge["mode"] == "lines"


def test_a_line_without_gaps_has_no_points() -> None:
    panels = panels_of([stream_at(second + 0.2) for second in range(10)])
    for panel in panels.values():
        for trace in panel.chart["traces"]:
            assert trace["mode"] == "lines", panel.title


def test_what_nobody_saw_has_no_chart() -> None:
    panels = panels_of([answer(0.5, 0.7), answer(1.5, 1.8)])
    assert "Time to first token" not in panels
    assert "Inter-token latency" not in panels
    assert not {title for title in panels if title.startswith("Server")}
    assert set(panels) >= {"End to end", "Traffic", "In flight"}


def test_the_server_is_drawn_on_the_clock_of_the_run() -> None:
    samples = tuple(
        UseSample(at_s=1000.0 + second, utilisation_ratio=0.5, memory_bytes=None, running=second)
        for second in range(4)
    )
    panels = panels_of([stream_at(0.2)], use=UseSeries(samples=samples), zero_monotonic_s=1000.0)
    utilisation = trace_of(panels["Server"], "utilisation")
    assert utilisation["x"] == [0.0, 1.0, 2.0, 3.0]
    assert trace_of(panels["Server's queue"], "running")["y"] == [0, 1, 2, 3]
    assert "Server's memory" not in panels


def test_time_that_is_not_measured_is_shaded() -> None:
    panels = panels_of([stream_at(0.2)], window=(2.0, 7.0))
    shades = [
        (shape["x0"], shape["x1"])
        for shape in panels["Traffic"].chart["shapes"]
        if shape["type"] == "rect"
    ]
    assert shades == [(0.0, 2.0), (7.0, 10.0)]


def test_targets_are_drawn_where_there_are_some() -> None:
    panels = panels_of([stream_at(0.2)], slo=Slo(ttft_s=0.15))
    (line,) = [s for s in panels["Time to first token"].chart["shapes"] if s["type"] == "line"]
    assert line["y0"] == line["y1"] == 0.15
    assert all(s["type"] != "line" for s in panels["Inter-token latency"].chart["shapes"])


def test_failures_and_cancellations_are_drawn_once_there_are_some() -> None:
    records = [stream_at(0.2), answer(1.2, 1.3, outcome="server_error")]
    names = {trace["name"] for trace in panels_of(records)["Traffic"].chart["traces"]}
    assert names == {"due", "answered well", "failed"}
    failed = trace_of(panels_of(records)["Traffic"], "failed")
    assert failed["y"][:3] == [0, 1, 0]


def test_shares_of_first_tokens_are_of_all_requests() -> None:
    failed = [answer(1.0, 1.1, outcome="rejected"), answer(1.0, 1.1, outcome="rejected")]
    panels = {p.title: p for p in distribution_panels([stream_at(0.2), *failed], Slo())}
    (share,) = panels["Time to first token"].chart["traces"]
    assert share["y"] == [pytest.approx(1 / 3, abs=1e-4)]
    assert share["x"] == [pytest.approx(FIRST_S)]


def test_no_answers_have_no_distribution() -> None:
    silent = streamed([], scheduled_s=0.0, outcome="connect", token_events=array("I"))
    assert distribution_panels([silent], Slo(ttft_s=1.0)) == []


def test_failures_are_by_class_and_only_those_that_happened() -> None:
    panel = failure_panel({"cut": 2, "client_error": 1, "unsent": 0})
    assert panel is not None
    (bar,) = panel.chart["traces"]
    assert dict(zip(bar["y"], bar["x"], strict=True)) == {"cut": 2, "client error": 1}
    assert failure_panel({}) is None
