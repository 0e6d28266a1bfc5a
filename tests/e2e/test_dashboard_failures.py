"""The dashboard when something fails: it says so, dates what it shows, and recovers by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from mileage.gateway.admin.fleet import LedgerStatus
from tests.support.browser import Serve, chromium, live_planes
from tests.support.dashboard_page import (
    click_in_row,
    complaints,
    open_dashboard,
    replica_row,
    state,
    text,
    texts,
    wait,
)

pytestmark = pytest.mark.heavy


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chrome]:
    with chromium(tmp_path / "profile") as made:
        yield made


@pytest.fixture
def serve() -> Iterator[Serve]:
    with live_planes() as start:
        yield start


def test_a_change_that_fails_is_told(browser: Chrome, serve: Serve) -> None:
    plane = serve()
    open_dashboard(browser, plane)
    plane.fleet.set_replica = lambda name, enabled: False  # type: ignore[method-assign]
    click_in_row(browser, "h100-a:8000", "Disable")
    browser.find_element(By.ID, "confirm-yes").click()
    expected = "Could not disable h100-a:8000: No replica has this name."
    wait(browser, lambda: text(browser, "#notice") == expected)


def test_a_replica_that_is_down_is_shown_with_its_reason_and_its_age(
    browser: Chrome, serve: Serve
) -> None:
    plane = serve(history_s=120)
    plane.do(lambda: plane.fleet.set_health("h100-c:8000", up=False, reason="connection refused"))
    plane.fleet.ledger = LedgerStatus(ok=False, error="disk full", rows_total=12, lag_bytes=2048)
    open_dashboard(browser, plane)
    wait(browser, lambda: replica_row(browser, "h100-c:8000")["State"].startswith("down"))
    assert replica_row(browser, "h100-c:8000")["State"] == "down\nconnection refused"
    assert text(browser, "#replicas-summary") == "1 of 3 not up"
    stale = "#replicas tbody tr:nth-child(3) .old"
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, stale))
    wait(browser, lambda: texts(browser, "#ledger dd")[:3] == ["disk full", "12", "2.00 KiB"])
    wait(browser, lambda: "cannot write" in text(browser, "#processes"))


def test_it_says_so_when_the_gateway_is_gone_and_comes_back_by_itself(
    browser: Chrome, serve: Serve
) -> None:
    plane = serve()
    open_dashboard(browser, plane)
    plane.stop()
    wait(browser, lambda: state(browser) == "unreachable")
    assert text(browser, "#state") == "Unreachable"
    assert re.match(r"Gateway unreachable since \d\d:\d\d:\d\d", text(browser, "#notice"))
    assert browser.title == "(!) Mileage"
    plane.start()
    wait(browser, lambda: state(browser) == "live")
    assert not browser.find_element(By.ID, "notice").is_displayed()
    assert browser.title == "Mileage"
    uptime = text(browser, "#version")
    wait(browser, lambda: text(browser, "#version") != uptime)
    assert complaints(browser) == []


def test_a_gateway_that_hangs_makes_the_figures_old_then_unreachable(
    browser: Chrome, serve: Serve
) -> None:
    plane = serve()
    open_dashboard(browser, plane)
    plane.hang(6.0)
    wait(browser, lambda: state(browser) == "stale")
    assert "These figures are old" in text(browser, "#notice")
    opacity = browser.find_element(By.TAG_NAME, "main").value_of_css_property("opacity")
    assert float(opacity) < 1
    wait(browser, lambda: state(browser) == "live")
    assert not browser.find_element(By.ID, "notice").is_displayed()


def test_a_new_token_leads_back_to_the_login(browser: Chrome, serve: Serve) -> None:
    plane = serve()
    open_dashboard(browser, plane)
    plane.stop()
    browser.delete_all_cookies()
    plane.start()
    wait(browser, lambda: browser.current_url == f"{plane.url}login")


def test_a_gateway_that_drains_is_shown_as_one(browser: Chrome, serve: Serve) -> None:
    plane = serve()
    open_dashboard(browser, plane)
    plane.do(plane.fleet.drain)
    wait(browser, lambda: state(browser) == "draining")
    assert text(browser, "#state") == "Draining"
    wait(browser, lambda: "draining" in text(browser, "#processes"))
