"""mileage simulate --report: one page with everything in it, whatever names a trace has."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from mileage.cli import html_report
from mileage.core.errors import ConfigError
from tests.support.simulate_cli import simulate

TRACE = "synthetic:rate=4,duration=30s,prompt=uniform:100:2000,output=uniform:10:100"
FLEET = ("--model", "llama-3.1-8b", "--gpu", "h100", "--slo", "ttft=1s,itl=50ms")


def charts_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.S)
    assert found is not None
    charts: dict[str, Any] = json.loads(found[1])
    return charts


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    options = ("--policy", "off,static:4", "--price", "2", "--rate-scale", "4")
    result = simulate("compare", "--trace", TRACE, *FLEET, *options, "--report", str(path))
    assert result.exit_code == 0, result.output
    return path.read_text("utf-8")


def test_only_the_scripts_of_the_page_may_run_and_nothing_is_fetched(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy[1].partition("style-src")[0]
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy[1]
    without_scripts = re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    assert re.findall(r"<link|<img|<iframe|\bsrc=|https?://", without_scripts) == []


def test_each_arm_has_each_chart_over_time_on_the_same_scale(page: str) -> None:
    charts = charts_of(page)
    over_time = [chart for chart in charts.values() if chart["time"]]
    by_arm = {
        name: [chart["yaxis"] for chart in over_time if chart["name"] == name]
        for name in ("off", "static:4")
    }
    assert len(by_arm["off"]) == 7  # latencies, requests, traffic, utilisation, output, cost
    assert by_arm["off"] == by_arm["static:4"]
    assert len(charts) == len(over_time) + 4
    for place in charts:
        assert page.count(f'id="{place}"') == 1


def test_the_targets_are_drawn(page: str) -> None:
    drawn = {
        shape[axis]
        for chart in charts_of(page).values()
        for shape in chart["shapes"]
        for axis in ("x0", "y0")
    }
    assert {1.0, 0.05} <= drawn


def test_curves_end_at_the_share_that_was_answered(page: str) -> None:
    whole = [chart for chart in charts_of(page).values() if chart["name"] == "End to end"]
    assert len(whole) == 1
    ends = {trace["name"]: trace["y"][-1] for trace in whole[0]["traces"]}
    assert ends["off"] == 1.0
    assert ends["static:4"] < 1.0


def test_figures_and_assumptions_are_tables(page: str) -> None:
    text = html.unescape(re.sub(r"<[^>]+>", " ", page))
    for word in ("met their targets", "gpu_memory_utilization_ratio", "price_source", "--price"):
        assert word in text
    assert 'class="best"' in page
    assert 'class="worst"' in page


def test_a_single_run_shows_its_main_figures_first(tmp_path: Path) -> None:
    path = tmp_path / "one.html"
    result = simulate("--trace", TRACE, *FLEET, "--report", str(path), "--json")
    assert result.exit_code == 0
    met = json.loads(result.stdout)["slo_attainment_ratio"]
    page = path.read_text("utf-8")
    assert f"<dt>met their targets</dt><dd>{met:.1%}</dd>" in page
    assert f"wrote {path}" in result.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"one.html"}, "no partial file is left"


def test_names_do_not_become_markup(tmp_path: Path) -> None:
    trace = tmp_path / "<img src=x onerror=alert(1)>.jsonl"
    trace.write_text('{"arrived_s":0.0,"prompt_tokens":10,"output_tokens":5}\n')
    path = tmp_path / "report.html"
    result = simulate("--trace", str(trace), *FLEET, "--report", str(path))
    assert result.exit_code == 0, result.output
    page = path.read_text("utf-8")
    assert "<img src=x" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;.jsonl" in page


def test_a_capacity_search_reports_the_arms_at_their_capacity(tmp_path: Path) -> None:
    path = tmp_path / "capacity.html"
    options = ("--policy", "off,static:4", "--tolerance", "0.3", "--gaps", "mean")
    result = simulate("capacity", "--trace", TRACE, *FLEET, *options, "--report", str(path))
    assert result.exit_code == 0, result.output
    assert "the mean of each request's own gaps" in html.unescape(path.read_text("utf-8"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        pytest.param("missing/report.html", "a file in a directory", id="no such directory"),
        pytest.param(".", "this is a directory", id="a directory"),
    ],
)
def test_a_report_that_cannot_be_written_is_told_before_anything_runs(
    tmp_path: Path, name: str, told: str
) -> None:
    result = simulate("--trace", "nowhere", *FLEET, "--report", str(tmp_path / name))
    assert isinstance(result.exception, ConfigError)
    assert result.exception.key == "--report"
    assert told in str(result.exception)


def test_without_plotly_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_report, "find_spec", lambda _: None)
    result = simulate("--trace", TRACE, *FLEET, "--report", str(tmp_path / "report.html"))
    assert isinstance(result.exception, ConfigError)
    assert "pip install 'mileage[sim]'" in str(result.exception)


def test_a_report_takes_the_place_of_what_a_link_names(tmp_path: Path) -> None:
    kept, link = tmp_path / "kept.html", tmp_path / "latest.html"
    kept.write_text("before", "utf-8")
    kept.chmod(0o600)
    link.symlink_to(kept)
    result = simulate("--trace", TRACE, *FLEET, "--report", str(link))
    assert result.exit_code == 0, result.output
    assert link.is_symlink()
    assert kept.read_text("utf-8").startswith("<!doctype html>")
    assert kept.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.html", "latest.html"]


def test_a_report_without_targets_has_no_figure_of_them(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    result = simulate(
        "--trace", TRACE, "--model", "llama-3.1-8b", "--gpu", "h100", "--report", str(path)
    )
    assert result.exit_code == 0, result.output
    assert "met their targets" not in result.stdout + path.read_text("utf-8")
