"""What tests read off the dashboard's page, and how they wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.browser import TOKEN, WAIT_S, LivePlane

__all__ = [
    "click_in_row",
    "complaints",
    "open_dashboard",
    "replica_row",
    "state",
    "text",
    "texts",
    "wait",
]


def text(browser: Chrome, selector: str) -> str:
    return browser.find_element(By.CSS_SELECTOR, selector).text


def texts(browser: Chrome, selector: str) -> list[str]:
    return [found.text for found in browser.find_elements(By.CSS_SELECTOR, selector)]


def wait(browser: Chrome, condition: Callable[[], Any]) -> Any:
    # A page that redraws itself while it is read has to be read again.
    waiting = WebDriverWait(
        browser,
        WAIT_S,
        poll_frequency=0.1,
        ignored_exceptions=(StaleElementReferenceException,),
    )
    return waiting.until(lambda _: condition())


def state(browser: Chrome) -> str | None:
    return browser.find_element(By.TAG_NAME, "body").get_attribute("data-state")


def open_dashboard(browser: Chrome, plane: LivePlane, fragment: str = "") -> None:
    browser.get(f"{plane.url}?token={TOKEN}{fragment}")
    wait(browser, lambda: state(browser) == "live")


def complaints(browser: Chrome) -> list[str]:
    """What the browser's console says, but for requests that a test lets fail."""
    entries = browser.get_log("browser")  # type: ignore[no-untyped-call]
    return [entry["message"] for entry in entries if entry["source"] != "network"]


def replica_row(browser: Chrome, name: str) -> dict[str, str]:
    titles = texts(browser, "#replicas thead th")
    for row in browser.find_elements(By.CSS_SELECTOR, "#replicas tbody tr"):
        cells = [cell.text for cell in row.find_elements(By.CSS_SELECTOR, "th, td")]
        if cells[0] == name:
            return dict(zip(titles, cells, strict=True))
    raise AssertionError(f"no row of {name}")


def click_in_row(browser: Chrome, name: str, verb: str) -> None:
    for button in browser.find_elements(By.CSS_SELECTOR, "#replicas tbody button"):
        if button.get_attribute("aria-label") == f"{verb} {name}":
            button.click()
            return
    raise AssertionError(f"no button to {verb} {name}")
