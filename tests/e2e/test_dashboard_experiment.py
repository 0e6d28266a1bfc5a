"""A live experiment on the dashboard, in a real browser: both arms, and what has become of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from mileage.control.experiment_config import ExperimentConfig
from tests.support.browser import LivePlane, Serve, chromium, live_planes
from tests.support.dashboard_page import complaints, open_dashboard, text, texts, wait
from tests.support.toy_arms import DeskSite, experiment

pytestmark = pytest.mark.heavy

MARKUP = "</td><img src=x onerror='window.pwned=1'>"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chrome]:
    with chromium(tmp_path / "profile") as made:
        yield made


@pytest.fixture
def serve() -> Iterator[Serve]:
    with live_planes() as start:
        yield start


def begin(plane: LivePlane, config: ExperimentConfig) -> DeskSite:
    """Let the plane's gateway run this experiment."""
    site = DeskSite()

    def start() -> None:
        plane.fleet.experiments = site.desk
        site.desk.configure(config)

    plane.do(start)
    return site


def shown(browser: Chrome) -> bool:
    return browser.find_element(By.ID, "experiment-panels").is_displayed()


def facts(browser: Chrome) -> dict[str, str]:
    rows = (each.partition("\n") for each in texts(browser, "#experiment-facts div"))
    return {title: value for title, _, value in rows}


def row(browser: Chrome, title: str) -> list[str]:
    for found in browser.find_elements(By.CSS_SELECTOR, "#experiment tbody tr"):
        cells = [cell.text for cell in found.find_elements(By.CSS_SELECTOR, "th, td")]
        if cells[0] == title:
            return cells[1:]
    raise AssertionError(f"no row {title}")


def test_both_arms_are_shown_while_an_experiment_runs(browser: Chrome, serve: Serve) -> None:
    plane = serve(history_s=5)
    open_dashboard(browser, plane)
    assert not shown(browser)
    site = begin(plane, experiment(mode="ab", ratio=0.25))
    wait(browser, lambda: shown(browser))
    assert text(browser, "#experiment-name") == "new (ab)"
    assert row(browser, "Requests") == ["0", "0", "", "", ""]
    assert facts(browser)["Step"] == "–"
    plane.do(lambda: site.seconds(10, a=60, b=20, took_s=0.2))
    wait(browser, lambda: facts(browser)["Verdict"] == "b is worse")
    assert row(browser, "Requests")[:2] == ["600", "200"]
    assert row(browser, "Answered") == [
        "100.00 %",
        "100.00 %",
        "+0.0 %",
        "+0.0 % to +0.0 %",
        "no difference",
    ]
    assert row(browser, "TTFT") == ["100 ms", "200 ms", "+100 %", "+100 % to +100 %", "b is worse"]
    assert facts(browser)["Traffic of b"] == "25 %"
    assert facts(browser)["State"] == "running"
    plane.do(site.desk.stop)
    wait(browser, lambda: not shown(browser))
    assert complaints(browser) == []


def test_a_canarys_step_and_the_reason_of_its_rollback_are_shown(
    browser: Chrome, serve: Serve
) -> None:
    plane = serve(history_s=5)
    open_dashboard(browser, plane)
    site = begin(plane, experiment())
    plane.do(lambda: site.seconds(35, a=80))
    wait(browser, lambda: shown(browser) and facts(browser)["Step"].startswith("2 of 2"))
    assert facts(browser)["Step"] == "2 of 2: 20 %, 50 %"
    plane.do(lambda: site.seconds(20, a=80, failed=10))
    wait(browser, lambda: facts(browser)["State"].startswith("rolled back"))
    assert "arm b is worse: more of its requests fail" in facts(browser)["Reason"]
    assert facts(browser)["Traffic of b"] == "0 %"
    assert row(browser, "Answered")[0] == "100.00 %"
    state = browser.find_element(By.CSS_SELECTOR, "#experiment-facts dd")
    assert state.get_attribute("class") == "dot bad"
    assert complaints(browser) == []


def test_the_name_of_an_experiment_is_text_and_nothing_else(browser: Chrome, serve: Serve) -> None:
    plane = serve(history_s=5)
    begin(plane, experiment(name=MARKUP))
    open_dashboard(browser, plane)
    wait(browser, lambda: shown(browser))
    assert text(browser, "#experiment-name") == f"{MARKUP} (canary)"
    assert browser.find_elements(By.CSS_SELECTOR, "main img") == []
    assert browser.execute_script("return window.pwned") is None
    assert complaints(browser) == []
