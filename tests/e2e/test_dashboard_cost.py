"""The page of costs in a real browser: where the money went, by whom, and over time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from mileage.core.errors import LedgerError
from tests.support.browser import TOKEN, LivePlane, Serve, chromium, live_planes
from tests.support.dashboard_page import complaints, text, texts, wait
from tests.support.synthetic_costs import SyntheticCosts

pytestmark = pytest.mark.heavy

HOSTILE = (
    '<img src=x onerror="window.pwned=1">',
    "__proto__",
    "</td><script>window.pwned=1</script>",
)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chrome]:
    with chromium(tmp_path / "profile", height=1400) as made:
        yield made


@pytest.fixture
def serve() -> Iterator[Serve]:
    with live_planes() as start:
        yield start


def open_costs(browser: Chrome, plane: LivePlane, fragment: str = "") -> None:
    browser.get(f"{plane.url}?token={TOKEN}")
    browser.get(f"{plane.url}cost{fragment}")
    wait(browser, lambda: text(browser, "#state").startswith("As of"))


def press(browser: Chrome, group: str, label: str) -> None:
    for button in browser.find_elements(By.CSS_SELECTOR, f"#{group} button"):
        if button.text == label:
            button.click()
            return
    raise AssertionError(f"no button {label}")


def accounts(browser: Chrome) -> list[str]:
    return texts(browser, "#accounts tbody th span")


def test_one_sees_where_the_money_went_by_whom_and_when(browser: Chrome, serve: Serve) -> None:
    plane = serve(history_s=0, costs=SyntheticCosts())
    browser.get(f"{plane.url}?token={TOKEN}")
    browser.find_element(By.LINK_TEXT, "Costs").click()
    wait(browser, lambda: texts(browser, "#tile-total .tile-text") == ["$239.04"])
    assert text(browser, "#tile-total .tile-detail") == "96.0 GPU-h"
    assert accounts(browser) == ["search", "support", "batch", "(warm-up)", "(idle)"]
    shown = [float(cell.lstrip("$")) for cell in texts(browser, "#accounts td:nth-child(2) span")]
    assert sum(shown) == pytest.approx(239.04, abs=0.02)
    parts = [part.split("\n")[0] for part in texts(browser, "#where div dd")]
    assert sum(float(part.lstrip("$")) for part in parts if part) == pytest.approx(239.04, abs=0.02)
    columns = browser.find_elements(By.CSS_SELECTOR, "#time .column")
    assert len(columns) == 24
    assert "Decode $" in (columns[0].get_attribute("aria-label") or "")
    assert "provisional after" in text(browser, "#accounts-note")
    assert texts(browser, "#replicas tbody th span") == ["h100-a:8000", "h100-b:8000"]
    assert complaints(browser) == []


def test_time_and_accounts_can_be_chosen_and_stay_in_the_address(
    browser: Chrome, serve: Serve
) -> None:
    costs = SyntheticCosts()
    plane = serve(history_s=0, costs=costs)
    open_costs(browser, plane)
    press(browser, "groups", "Model")
    wait(browser, lambda: accounts(browser)[:2] == ["qwen3-32b", "sql-adapter"])
    press(browser, "windows", "30 d")
    wait(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, "#time .column")) == 31)
    press(browser, "stacks", "By account")
    wait(browser, lambda: texts(browser, "#time-legend span") == ["qwen3-32b", "sql-adapter"])
    assert costs.asked == [("24h", "tenant"), ("24h", "model"), ("30d", "model")]
    browser.refresh()
    wait(browser, lambda: texts(browser, "#time-legend span") == ["qwen3-32b", "sql-adapter"])
    assert complaints(browser) == []


def test_without_a_price_there_is_gpu_time_and_what_to_do(browser: Chrome, serve: Serve) -> None:
    open_costs(browser, serve(history_s=0, costs=SyntheticCosts(priced=False)))
    assert text(browser, "#tile-total .tile-text") == "96.0 GPU-h"
    assert texts(browser, "#accounts td:nth-child(2) span") == ["–"] * 5
    parts = [part.split("\n")[0] for part in texts(browser, "#where div dd")]
    nothing = browser.find_element(By.CSS_SELECTOR, "#where-unattributed dd")  # hidden
    assert (nothing.get_attribute("textContent") or "").startswith("0 GPU-h")
    assert not [part for part in parts if "$" in part]
    assert "$" not in text(browser, "#tile-lost .tile-detail")
    assert "usd_per_gpu_hour" in text(browser, "#replicas-note")
    assert complaints(browser) == []


def test_an_empty_ledger_says_what_is_missing(browser: Chrome, serve: Serve) -> None:
    open_costs(browser, serve(history_s=0, costs=SyntheticCosts(hours=False)))
    assert "No GPU time is on record" in text(browser, "#nothing h2")
    assert not browser.find_element(By.ID, "found").is_displayed()


def test_names_of_accounts_are_only_text(browser: Chrome, serve: Serve) -> None:
    open_costs(browser, serve(history_s=0, costs=SyntheticCosts(tenants=HOSTILE)), "#stack=account")
    assert set(HOSTILE) < set(accounts(browser))
    assert set(texts(browser, "#time-legend span")) == set(HOSTILE)
    assert browser.execute_script("return window.pwned") is None
    assert complaints(browser) == []


def test_a_ledger_that_fails_is_told_and_asked_again(browser: Chrome, serve: Serve) -> None:
    costs = SyntheticCosts()
    costs.error = LedgerError("/ledger", "is locked")
    plane = serve(history_s=0, costs=costs)
    browser.get(f"{plane.url}?token={TOKEN}")
    browser.get(f"{plane.url}cost")
    wait(browser, lambda: "is locked" in text(browser, "#notice"))
    costs.error = None
    wait(browser, lambda: text(browser, "#tile-total .tile-text") == "$239.04")
    assert not browser.find_element(By.ID, "notice").is_displayed()


def test_who_is_not_logged_in_is_led_to_the_login(browser: Chrome, serve: Serve) -> None:
    plane = serve(history_s=0, costs=SyntheticCosts())
    browser.get(f"{plane.url}cost")
    assert browser.current_url == f"{plane.url}login"
    open_costs(browser, plane)
    browser.delete_all_cookies()
    press(browser, "groups", "Model")
    wait(browser, lambda: browser.current_url == f"{plane.url}login")
