"""The page of a tail: what is in it, and that nothing in it is markup of others."""

from __future__ import annotations

import json
import re

from mileage.dashboard.tail_report import TailPage, tail_page
from mileage.measure.tail import attribute_tail
from mileage.measure.tail_host import Pause
from mileage.measure.tail_report import TailOptions, TailReport
from tests.support.tail_calls import call, steady_run

LATE = call(500, 5.03, gaps_s=(0.02, 0.4, 0.02))
STOP = Pause(cause="stopped", role="engine", start_s=5.11, end_s=5.4, busy_s=0.29, pid=7)


def report() -> TailReport:
    return attribute_tail(
        [*steady_run(), LATE], TailOptions(requests_min=1, waterfalls=3), pauses=[STOP]
    )


def page(title: str = "m") -> str:
    return tail_page(
        TailPage(
            title=title,
            report=report(),
            lines=(("Endpoint", "http://h"),),
            rows=(("stopped process (engine)", ("1 s",) * 6),),
            sources=(("kernel", "seen", "each 50 ms"),),
            version="1.2.3",
        )
    )


def charts(text: str) -> dict[str, dict[str, object]]:
    match = re.search(
        r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL
    )
    assert match is not None
    return dict(json.loads(match[1]))


def test_it_holds_verdict_evidence_stages_and_sources() -> None:
    text = page()
    assert "stopped process (engine) comes first" in text
    assert "the engine (process 7) was stopped for 0.290 s" in text
    assert "each 50 ms" in text
    assert "Measured by Mileage 1.2.3." in text


def test_the_slowest_are_drawn_moment_by_moment() -> None:
    (bars, waterfalls) = charts(page()).values()
    assert bars["name"] == "stages"
    drawn = waterfalls["traces"]
    assert isinstance(drawn, list)
    stopped = next(trace for trace in drawn if trace["name"] == "stopped process (engine)")
    assert sum(stopped["x"]) > 0.28
    rows = {row for trace in drawn for row in trace["y"]}
    assert rows == set(range(len(rows)))
    lengths = sum(sum(trace["x"]) for trace in drawn)
    assert abs(lengths - sum(w.latency_s for w in report().waterfalls)) < 1e-6


def test_a_name_is_no_markup() -> None:
    assert "<img" not in page("<img src=x>").replace("&lt;img", "")
