"""The dashboard in a real browser: what an operator sees, clicks and must never be shown."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from mileage.gateway.admin.fleet import LedgerStatus
from tests.support.browser import TOKEN, Serve, chromium, live_planes
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

CHARTS = (
    "tokens",
    "ttft",
    "itl",
    "requests",
    "targets",
    "limits",
    "refusals",
    "replicas",
    "kv",
)
HOSTILE = (
    '<img src=x onerror="window.pwned=1">',
    "__proto__",
    "a/b?c#d%2f'\"&amp;",
    "</td><script>window.pwned=1</script>",
)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chrome]:
    with chromium(tmp_path / "profile") as made:
        yield made


@pytest.fixture
def serve() -> Iterator[Serve]:
    with live_planes() as start:
        yield start


def test_one_logs_in_with_the_link_and_sees_live_figures(browser: Chrome, serve: Serve) -> None:
    plane = serve()
    open_dashboard(browser, plane)
    assert TOKEN not in browser.current_url
    assert browser.execute_script("return document.cookie") == ""
    assert re.fullmatch(r"\d+(\.\d+)?k?", text(browser, "#tile-output .tile-text"))
    assert re.fullmatch(r"[\d.]+ m?s", text(browser, "#tile-ttft .tile-text"))
    assert re.fullmatch(r"p99 [\d.]+ m?s", text(browser, "#tile-itl .tile-detail"))
    for chart in CHARTS:
        assert browser.find_elements(By.CSS_SELECTOR, f"#chart-{chart} canvas")
        assert not browser.find_element(By.CSS_SELECTOR, f"#chart-{chart} .empty").is_displayed()
    assert texts(browser, "#chart-ttft .legend span") == ["p99", "p95", "p50", "target"]
    assert text(browser, "#ledger dd") == "storing"
    before = text(browser, "#version"), text(browser, "#ledger div:nth-child(2) dd")
    wait(browser, lambda: text(browser, "#version") != before[0])
    wait(browser, lambda: text(browser, "#ledger div:nth-child(2) dd") != before[1])
    assert replica_row(browser, "h100-a:8000")["State"] == "up"
    assert complaints(browser) == []


def test_one_logs_in_by_pasting_the_token_and_out_again(browser: Chrome, serve: Serve) -> None:
    plane = serve(history_s=0)
    browser.get(plane.url)
    assert browser.current_url == f"{plane.url}login"
    field = browser.find_element(By.ID, "token")
    assert field == browser.switch_to.active_element
    field.send_keys("wrong-token-of-some-length", Keys.ENTER)
    wait(browser, lambda: texts(browser, ".login-error") == ["That token is not valid."])
    browser.find_element(By.ID, "token").send_keys(TOKEN, Keys.ENTER)
    wait(browser, lambda: browser.current_url.startswith(f"{plane.url}#"))
    wait(browser, lambda: state(browser) == "live")
    browser.find_element(By.XPATH, "//button[text()='Sign out']").click()
    wait(browser, lambda: browser.current_url == f"{plane.url}login")
    browser.get(plane.url)
    assert browser.current_url == f"{plane.url}login"
    assert complaints(browser) == []


def test_a_link_from_another_site_opens_the_dashboard_of_who_is_logged_in(
    browser: Chrome, serve: Serve
) -> None:
    plane = serve(history_s=0)
    open_dashboard(browser, plane)
    # With such a link the browser holds the cookie back: it is SameSite=Strict.
    browser.get(f'data:text/html,<a href="{plane.url}">gateway</a>')
    browser.find_element(By.TAG_NAME, "a").click()
    wait(browser, lambda: browser.current_url.startswith(f"{plane.url}#"))
    wait(browser, lambda: state(browser) == "live")


def test_without_traffic_unknown_figures_are_dashes_and_counted_ones_zero(
    browser: Chrome, serve: Serve
) -> None:
    plane = serve(load=0.0)
    open_dashboard(browser, plane)
    assert text(browser, "#tile-requests .tile-text") == "0"
    assert text(browser, "#tile-in-flight .tile-text") == "0"
    for tile in ("ttft", "itl", "output", "cached"):
        assert text(browser, f"#tile-{tile} .tile-text") == "–"
    assert text(browser, "#chart-ttft .empty") == "No data in this window"
    assert complaints(browser) == []


def test_with_nothing_behind_it_every_figure_is_a_dash(browser: Chrome, serve: Serve) -> None:
    plane = serve(replicas=(), pids=())
    plane.fleet.ledger = None
    open_dashboard(browser, plane)
    assert set(texts(browser, ".tile-text")) == {"–"}
    assert text(browser, "#replicas") == "No replica is configured."
    wait(browser, lambda: text(browser, "#ledger dd") == "none")
    assert complaints(browser) == []


def test_names_are_text_and_nothing_else(browser: Chrome, serve: Serve) -> None:
    plane = serve(replicas=HOSTILE, model=HOSTILE[0], tenants=(HOSTILE[3],))
    plane.fleet.ledger = LedgerStatus(ok=False, error=HOSTILE[0])
    plane.do(lambda: plane.fleet.set_health(HOSTILE[1], up=False, reason=HOSTILE[3]))
    open_dashboard(browser, plane)
    wait(browser, lambda: text(browser, "#ledger dd") == HOSTILE[0])
    assert texts(browser, "#replicas tbody th") == list(HOSTILE)
    assert HOSTILE[3] in replica_row(browser, HOSTILE[1])["State"]
    assert replica_row(browser, HOSTILE[2])["Models"] == HOSTILE[0]
    names = browser.find_elements(By.CSS_SELECTOR, "#chart-kv .legend span")
    assert {name.get_attribute("title") for name in names} == set(HOSTILE)
    click_in_row(browser, HOSTILE[2], "Disable")
    assert text(browser, "#confirm-title") == f"Disable {HOSTILE[2]}?"
    browser.find_element(By.ID, "confirm-yes").click()
    wait(browser, lambda: "disabled" in replica_row(browser, HOSTILE[2])["State"])
    click_in_row(browser, HOSTILE[0], "Disable")
    assert text(browser, "#confirm-title") == f"Disable {HOSTILE[0]}?"
    assert browser.find_elements(By.CSS_SELECTOR, "main img, main script, dialog img") == []
    assert browser.execute_script("return window.pwned") is None
    assert browser.execute_script("return Object.prototype.polluted") is None
    assert complaints(browser) == []


def test_a_replica_is_disabled_and_enabled_with_the_keyboard(browser: Chrome, serve: Serve) -> None:
    plane = serve()
    open_dashboard(browser, plane)
    button = browser.find_element(By.CSS_SELECTOR, '[aria-label="Disable h100-b:8000"]')
    browser.execute_script("arguments[0].focus()", button)
    # The page is updated under the focus, which stays where it is.
    uptime = text(browser, "#version")
    wait(browser, lambda: text(browser, "#version") != uptime)
    assert browser.switch_to.active_element == button
    button.send_keys(Keys.ENTER)
    assert browser.find_element(By.ID, "confirm").is_displayed()
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    wait(browser, lambda: not browser.find_element(By.ID, "confirm").is_displayed())
    assert replica_row(browser, "h100-b:8000")["State"] == "up"
    button.send_keys(Keys.ENTER)
    browser.find_element(By.ID, "confirm-yes").send_keys(Keys.ENTER)
    wait(browser, lambda: replica_row(browser, "h100-b:8000")["State"] == "disabled")
    assert [health.enabled for health in plane.fleet.replica_health()] == [True, False, True]
    assert text(browser, "#replicas-summary") == "1 of 3 not up"
    click_in_row(browser, "h100-b:8000", "Enable")
    browser.find_element(By.ID, "confirm-yes").click()
    wait(browser, lambda: replica_row(browser, "h100-b:8000")["State"] == "up")
    assert complaints(browser) == []


def test_pausing_holds_the_figures_and_resuming_goes_on(browser: Chrome, serve: Serve) -> None:
    plane = serve()
    open_dashboard(browser, plane)
    button = browser.find_element(By.ID, "pause")
    button.click()
    assert (button.text, button.get_attribute("aria-pressed")) == ("Resume", "true")
    assert text(browser, "#state") == "Paused"
    held = text(browser, "main")
    later = plane.fleet.ledger
    wait(browser, lambda: plane.fleet.ledger != later)
    time.sleep(2.5)  # what must not happen needs time to happen
    assert text(browser, "main") == held
    button.click()
    wait(browser, lambda: text(browser, "main") != held)
    assert state(browser) == "live"


@pytest.mark.parametrize(("label", "step_s"), [("15 min", 1), ("1 h", 10), ("24 h", 60)])
def test_the_range_is_chosen_and_kept_in_the_address(
    browser: Chrome, serve: Serve, label: str, step_s: int
) -> None:
    plane = serve(history_s=700)
    open_dashboard(browser, plane)
    browser.find_element(By.XPATH, f"//button[text()='{label}']").click()
    pressed = "#ranges [aria-pressed=true]"
    assert texts(browser, pressed) == [label]
    assert "#range=" in browser.current_url
    browser.refresh()
    wait(browser, lambda: state(browser) == "live")
    assert texts(browser, pressed) == [label]
    shown = "#chart-tokens .empty"
    wait(browser, lambda: not browser.find_element(By.CSS_SELECTOR, shown).is_displayed())
    browser.set_window_size(1000, 800)
    assert complaints(browser) == []


def test_the_chart_tells_the_figures_under_the_pointer(browser: Chrome, serve: Serve) -> None:
    plane = serve(history_s=300)
    open_dashboard(browser, plane)
    browser.find_element(By.ID, "pause").click()
    newest = texts(browser, "#chart-tokens .legend b")
    browser.execute_script(
        "const over = document.querySelector('#chart-tokens .u-over');"
        "const box = over.getBoundingClientRect();"
        "const at = {clientX: box.left + box.width / 3, clientY: box.top + 20, bubbles: true};"
        "over.dispatchEvent(new MouseEvent('mouseenter', at));"
        "over.dispatchEvent(new MouseEvent('mousemove', at));"
    )
    wait(browser, lambda: texts(browser, "#chart-tokens .legend b") != newest)
    times = texts(browser, ".charts figcaption .quiet")
    assert len(set(times)) == 1, "all charts tell the same moment"
    assert re.fullmatch(r"\d\d:\d\d:\d\d", times[0])


@pytest.mark.parametrize("width", [400, 800, 1100, 1440, 2200])
def test_nothing_runs_out_of_the_page_at_any_width(
    browser: Chrome, serve: Serve, width: int
) -> None:
    plane = serve(replicas=("a-replica-with-a-rather-long-name.cluster.internal:8000", "b"))
    open_dashboard(browser, plane)
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    script = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    wait(browser, lambda: browser.execute_script(script) == 0)
    for selector in (".tile-text", ".chart .u-wrap"):
        for found in browser.find_elements(By.CSS_SELECTOR, selector):
            assert found.rect["x"] + found.rect["width"] <= width


def test_a_change_of_the_colour_scheme_is_followed(browser: Chrome, serve: Serve) -> None:
    plane = serve()
    open_dashboard(browser, plane)

    def choose(scheme: str) -> str:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        return str(browser.find_element(By.TAG_NAME, "body").value_of_css_property("color"))

    light, dark = choose("light"), choose("dark")
    assert light != dark
    wait(
        browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, ".chart canvas")) == len(CHARTS)
    )
    assert complaints(browser) == []
