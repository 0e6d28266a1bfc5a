"""The HTML report of mileage bench in a real browser, from a file and without a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from mileage.cli.bench_figures import value_at
from tests.support.bench_cli import bench
from tests.support.browser import chromium
from tests.support.dashboard_page import state, text, texts, wait
from tests.support.engine import Behaviour, ScriptedEngine

pytestmark = pytest.mark.heavy

HOSTILE = "</script><img src=x onerror=document.title='owned'>"
BURST = 8
MOMENTS_S = (0.2, 2.2, 4.2, 6.2, 8.2)
"""Nothing is due, and nothing comes, in every other second."""
WARMUP_S = 1.0
COMMAND = (
    *("--model", HOSTILE, "--warmup", f"{WARMUP_S:g}s", "--slo", "ttft=1s,itl=1s"),
    *("--price", "2", "--no-calibrate", "--metrics-url", "none", "--json"),
)
OVER_TIME = {
    "Time to first token",
    "Inter-token latency",
    "End to end",
    "Traffic",
    "In flight",
    "Output",
    "Generator",
}
DISTRIBUTIONS = {
    "Time to first token",
    "A request's own p99 of gaps",
    "Time per output token",
    "End to end",
}
UNITS = {
    "": 1.0,
    "%": 0.01,
    "/s": 1.0,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "B": 1.0,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "J": 1.0,
    "kJ": 1e3,
    "MJ": 1e6,
}
LATENCIES = {
    "TTFT": "ttft_s",
    "ITL": "itl_s",
    "request's p99": "itl_request_p99_s",
    "TPOT": "tpot_s",
    "E2E": "e2e_s",
}
FIGURES = {
    "requests": "requests",
    "answered well": "requests_ok",
    "answers": "requests_per_s",
    "that met their targets": "goodput_rps",
    "met their targets": "slo_attainment_ratio",
    "output tokens": "output_tokens_per_s",
    "prompt tokens": "prompt_tokens_per_s",
    "tokens per event": "tokens_per_event",
    "prompt tokens from the prefix cache": "cached_tokens_ratio",
    "utilisation of the server": "utilisation_ratio",
    "memory of the server, highest": "memory_bytes",
    "energy of the server": "energy_j",
    "per output token": "energy_j_per_output_token",
    "cost per hour": "usd_per_hour",
    "cost per million output tokens": "usd_per_mtok",
    "generator: lag p99": "generator.lag_p99_s",
    "generator: CPU of its thread": "generator.cpu_ratio",
}
TILES = {
    "met their targets": "slo_attainment_ratio",
    "goodput": "goodput_rps",
    "TTFT p99": "ttft_s.p99",
    "ITL p99": "itl_s.p99",
    "E2E p99": "e2e_s.p99",
    "output tokens": "output_tokens_per_s",
    "utilisation": "utilisation_ratio",
}


class Report(NamedTuple):
    """A page, and the document of the same run."""

    path: Path
    document: dict[str, Any]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A run of bursts, two of whose requests fail, with a model's name that is meant to break out
    of the page."""
    directory = tmp_path_factory.mktemp("bench")
    trace, path = directory / "trace.jsonl", directory / "report.html"
    lines = (
        f'{{"arrived_s":{at_s},"prompt_tokens":20,"output_tokens":5}}\n'
        for at_s in MOMENTS_S
        for _ in range(BURST)
    )
    trace.write_text("".join(lines))
    usual = Behaviour(tokens=5, first_token_s=0.02, token_s=0.01)
    with ScriptedEngine(models=(HOSTILE,)) as engine:
        engine.behaviour = usual
        # Those of the warm-up are answered well.
        engine.following.extend([usual] * BURST)
        engine.following.extend([Behaviour(status=500, message=HOSTILE), Behaviour(status=429)])
        told = bench(engine.url, "--trace", str(trace), *COMMAND, "--report", str(path))
    assert told.code in (0, 3), told.err  # 3: this machine was too busy for the generator
    assert told.document["requests"] == BURST * len(MOMENTS_S)
    assert told.document["requests_failed"] == {"rejected": 1, "server_error": 1}
    return Report(path, told.document)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


def open_report(browser: Chrome, report: Report, scheme: str = "light") -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(report.path.as_uri())
    wait(browser, lambda: state(browser) == "drawn")


def sections(browser: Chrome) -> dict[str, Any]:
    """Sections of the page by their titles."""
    found = browser.find_elements(By.TAG_NAME, "section")
    return {section.find_element(By.TAG_NAME, "h2").text: section for section in found}


def rows(browser: Chrome, title: str) -> dict[str, list[str]]:
    """Cells of a table by the name of their row."""
    return {
        row.find_element(By.TAG_NAME, "th").text: [
            cell.text for cell in row.find_elements(By.TAG_NAME, "td")
        ]
        for row in sections(browser)[title].find_elements(By.CSS_SELECTOR, "tbody tr")
    }


def labels(section: Any) -> list[str]:
    return [
        chart.get_attribute("aria-label")
        for chart in section.find_elements(By.CSS_SELECTOR, ".chart")
    ]


def number(shown: str) -> float:
    """What a person reads there, in the unit of the document."""
    match = re.fullmatch(r"\$?([0-9.,e+-]+) ?(\D*)", shown)
    assert match is not None, shown
    return float(match[1].replace(",", "")) * UNITS[match[2]]


def assert_told(shown: str, value: float | None) -> None:
    """To the three digits, or the tenth of a percent, that are shown."""
    assert value is not None, shown
    rounding = 0.000501 if shown.endswith("%") else 0.0
    assert number(shown) == pytest.approx(value, rel=0.00501, abs=rounding), shown


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_drawn_without_a_complaint_or_a_request(
    browser: Chrome, report: Report, scheme: str
) -> None:
    open_report(browser, report, scheme)
    for chart in browser.find_elements(By.CSS_SELECTOR, ".chart"):
        assert chart.find_elements(By.CSS_SELECTOR, ".trace path, .point path")
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    requested = browser.execute_script(
        "return performance.getEntriesByType('resource').map((entry) => entry.name)"
    )
    assert [name for name in requested if not name.startswith(("data:", "blob:"))] == []


def test_there_is_a_chart_of_everything_that_was_seen(browser: Chrome, report: Report) -> None:
    open_report(browser, report)
    found = sections(browser)
    over_time = labels(found["Over time"])
    server = {name for name in over_time if name.startswith("Server")}
    assert set(over_time) - server == OVER_TIME
    if report.document["utilisation_ratio"] is not None:
        assert "Server" in server
    if report.document["memory_bytes"] is not None:
        assert "Server's memory" in server
    assert set(labels(found["All measured requests"])) == DISTRIBUTIONS
    assert labels(found["Failures"]) == ["By class"]


def test_seconds_that_stand_alone_are_seen(browser: Chrome, report: Report) -> None:
    open_report(browser, report)
    chart = browser.find_element(By.CSS_SELECTOR, '.chart[aria-label="Time to first token"]')
    seen = [
        point
        for point in chart.find_elements(By.CSS_SELECTOR, ".points path")
        if point.rect["width"] >= 2 and point.value_of_css_property("opacity") == "1"
    ]
    # The warm-up's second and the first measured one follow each other: a line. p50 and p99.
    assert len(seen) == 2 * (len(MOMENTS_S) - 1)


def test_the_latencies_are_those_of_the_document(browser: Chrome, report: Report) -> None:
    open_report(browser, report)
    quantiles = texts(browser, "table.numbers thead th")
    assert quantiles == ["p50", "p90", "p95", "p99", "p999", "max"]
    told = rows(browser, "Latencies")
    assert set(told) == set(LATENCIES)
    for name, cells in told.items():
        for quantile, shown in zip(quantiles, cells, strict=True):
            assert_told(shown, report.document[LATENCIES[name]][quantile])


def test_the_figures_are_those_of_the_document(browser: Chrome, report: Report) -> None:
    open_report(browser, report)
    told = rows(browser, "Figures")
    known = {n for n, key in FIGURES.items() if value_at(report.document, key) is not None}
    assert set(told) == known
    for name, (shown,) in told.items():
        assert_told(shown, value_at(report.document, FIGURES[name]))


def test_the_main_figures_and_the_failures_are_those_of_the_document(
    browser: Chrome, report: Report
) -> None:
    open_report(browser, report)
    tiles = dict(
        zip(texts(browser, ".tile dt"), texts(browser, ".tile dd"), strict=True),
    )
    assert tiles.pop("failed") == "2"
    for name, shown in tiles.items():
        assert_told(shown, value_at(report.document, TILES[name]))
    wrong = rows(browser, "What went wrong")
    errors = {each["class"]: each for each in report.document["errors"]}
    assert set(wrong) == set(errors) == {"rejected", "server_error"}
    for name, (requests, error) in wrong.items():
        assert int(requests) == errors[name]["requests"] == 1
        assert error == errors[name]["error"]


def test_names_and_messages_stay_text(browser: Chrome, report: Report) -> None:
    open_report(browser, report)
    assert browser.title != "owned"
    assert HOSTILE in text(browser, "h1")
    assert HOSTILE in rows(browser, "What went wrong")["server_error"][1]
    assert browser.find_elements(By.TAG_NAME, "img") == []
