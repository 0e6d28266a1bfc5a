"""The HTML report of mileage simulate in a real browser, from a file and without a network."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.support.browser import WAIT_S, chromium
from tests.support.dashboard_page import state, wait

pytestmark = pytest.mark.heavy

HOSTILE = "</script><img src=x onerror=document.title='owned'>.jsonl"
COMMAND = "--model llama-3.1-8b --gpu h100 --slo ttft=1s,itl=50ms --price 2 --rate-scale 6"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of a trace with a name that is meant to break out of the page."""
    directory = tmp_path_factory.mktemp("simulate")
    trace = directory / HOSTILE.replace("/", "\u2215")
    lines = (
        f'{{"arrived_s":{n / 4},"prompt_tokens":{200 + n},"output_tokens":{20 + n % 50}}}\n'
        for n in range(400)
    )
    trace.write_text("".join(lines))
    path = directory / "report.html"
    program = [sys.executable, "-m", "mileage.cli.main", "simulate", "compare"]
    arguments = ["--trace", str(trace), *COMMAND.split(), "--policy", "off,static:4,aimd"]
    subprocess.run([*program, *arguments, "--report", str(path)], check=True, timeout=60)
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


def open_report(browser: Chrome, report: Path, scheme: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(report.as_uri())
    wait(browser, lambda: state(browser) == "drawn")


def messages(browser: Chrome) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser")]  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_drawn_in_either_theme_without_a_complaint(
    browser: Chrome, report: Path, scheme: str
) -> None:
    open_report(browser, report, scheme)
    charts = browser.find_elements(By.CSS_SELECTOR, ".chart")
    assert len(charts) == 7 * 3 + 4
    for chart in charts:
        assert chart.find_elements(By.CSS_SELECTOR, ".trace path, .point path")
    assert messages(browser) == []
    requested = browser.execute_script(
        "return performance.getEntriesByType('resource').map((entry) => entry.name)"
    )
    assert [name for name in requested if not name.startswith(("data:", "blob:"))] == []
    page = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert page == {"light": "rgb(245, 246, 248)", "dark": "rgb(15, 19, 24)"}[scheme]


def test_charts_take_the_colours_of_another_theme(browser: Chrome, report: Path) -> None:
    open_report(browser, report, "light")

    def colour() -> str:
        lines = browser.find_elements(By.CSS_SELECTOR, "#chart4 .trace path.js-line")
        return lines[-1].value_of_css_property("stroke")  # the first ones are edges of a band

    light = colour()
    media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    wait(browser, lambda: colour() != light)


def test_names_stay_text(browser: Chrome, report: Path) -> None:
    open_report(browser, report, "light")
    assert browser.title != "owned"
    assert "onerror" in browser.find_element(By.TAG_NAME, "h1").text
    assert browser.find_elements(By.TAG_NAME, "img") == []


def test_a_window_of_time_is_shown_by_all_charts(browser: Chrome, report: Path) -> None:
    open_report(browser, report, "light")
    browser.execute_script("Plotly.relayout('chart4', {'xaxis.range[0]': 2, 'xaxis.range[1]': 5})")

    def ranges() -> set[tuple[float, float]]:
        found = browser.execute_script(
            "return [...document.querySelectorAll('.chart')].slice(4)"
            ".map((chart) => chart.layout.xaxis.range)"
        )
        return {(low, high) for low, high in found}

    deadline_s = time.monotonic() + WAIT_S
    while ranges() != {(2, 5)} and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert ranges() == {(2, 5)}


def test_nothing_is_wider_than_a_narrow_window(browser: Chrome, report: Path) -> None:
    metrics = {"width": 600, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    open_report(browser, report, "light")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 600
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
