"""The heatmap of GPUs in a real browser, from a file and without a network."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from mileage.storage.gpu_minute_queue import GpuMinuteQueue
from mileage.storage.gpu_minutes import GpuMinute
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore
from tests.support.browser import chromium
from tests.support.dashboard_page import state, texts, wait
from tests.support.gateway import run_mileage

pytestmark = pytest.mark.heavy

HOSTILE = "<img src=x onerror=document.title='owned'>"
IDLE: dict[str, list[float | None]] = {
    "node-1:0": [0.75, 0.5, None, 0.0],
    "node-1:1": [None, None, 1.0, None],
    f"{HOSTILE}:2": [0.25, 0.25, 0.25, 0.25],
}
"""By GPU and minute; None was not seen."""
PIXEL = """
const [chart, trace, row, column, rows, columns, done] = arguments;
const image = chart.querySelectorAll(".hm image")[trace];
const picture = new Image();
picture.onload = () => {
  const canvas = document.createElement("canvas");
  canvas.width = picture.width; canvas.height = picture.height;
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0);
  const x = Math.floor((column + 0.5) / columns * picture.width);
  const y = Math.floor((row + 0.5) / rows * picture.height);
  done(Array.from(context.getImageData(x, y, 1, 1).data));
};
picture.onerror = () => done(null);
picture.src = image.href.baseVal;
"""
"""The colour (red, green, blue, opacity) in the middle of a cell."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn by the command, of a ledger that has these minutes."""
    directory = tmp_path_factory.mktemp("heatmap")
    begin_s = int(time.time()) // 60 * 60 - 600
    rows = []
    for name, shares in IDLE.items():
        host, _, gpu = name.rpartition(":")
        for place, idle in enumerate(shares):
            if idle is not None:
                busy = 1.0 - idle
                at_s = begin_s + 60 * place
                rows.append(GpuMinute(at_s, host, gpu, "sm_active_ratio", busy, busy, 9))
    minutes = GpuMinuteQueue(pause_s=1.0, pause_max_s=1.0)
    minutes.note(rows)
    with closing(SqliteStore(directory / DATABASE_NAME)) as store:
        minutes.store(store, 0.0)
    path = directory / "gpus.html"
    told = run_mileage(
        "trace", "heatmap", "--ledger", str(directory), "--out", str(path), state=directory
    )
    assert told.returncode == 0, told.stderr
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


def open_page(browser: Chrome, page: Path, scheme: str = "light") -> Any:
    """The only chart: of nobody the bandwidth is known."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(page.as_uri())
    wait(browser, lambda: state(browser) == "drawn")
    (chart,) = browser.find_elements(By.CSS_SELECTOR, ".chart")
    return chart


def names(browser: Chrome, chart: Any) -> list[str]:
    """The rows as they are labelled, from the top."""
    labels = chart.find_elements(By.CSS_SELECTOR, ".ytick text")
    assert all(label.is_displayed() for label in labels)
    return [label.text for label in sorted(labels, key=lambda label: label.location["y"])]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_known_has_its_colour_and_what_is_not_is_marked(
    browser: Chrome, page: Path, scheme: str
) -> None:
    chart = open_page(browser, page, scheme)
    rows, columns = len(IDLE), len(next(iter(IDLE.values())))
    opacity: dict[float, set[tuple[int, ...]]] = {}
    # Rows are in the order in which they were first seen; within a minute, by name.
    shown = names(browser, chart)
    for row, name in enumerate(shown):
        for column, idle in enumerate(IDLE[name]):
            place = (row, column, rows, columns)
            heat = browser.execute_async_script(PIXEL, chart, 0, *place)
            unknown = browser.execute_async_script(PIXEL, chart, 1, *place)
            assert (heat[3] > 0, unknown[3] > 0) == (idle is not None, idle is None), place
            if idle is None:
                assert unknown[0] > unknown[1], unknown  # red
            else:
                opacity.setdefault(idle, set()).add(tuple(heat))
    assert all(len(colours) == 1 for colours in opacity.values()), opacity
    assert len({colour for colours in opacity.values() for colour in colours}) == len(opacity)


def test_nothing_is_wrong_and_nothing_is_asked_for(browser: Chrome, page: Path) -> None:
    open_page(browser, page)
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    requested = browser.execute_script(
        "return performance.getEntriesByType('resource').map((entry) => entry.name)"
    )
    assert [name for name in requested if not name.startswith(("data:", "blob:"))] == []


def test_names_stay_text(browser: Chrome, page: Path) -> None:
    chart = open_page(browser, page)
    assert set(names(browser, chart)) == set(IDLE)
    assert browser.title != "owned"
    assert browser.find_elements(By.TAG_NAME, "img") == []


def test_a_figure_that_nobody_knows_is_told_in_words(browser: Chrome, page: Path) -> None:
    open_page(browser, page)
    sections = dict(
        zip(
            texts(browser, "section h2"), browser.find_elements(By.TAG_NAME, "section"), strict=True
        )
    )
    assert "Not known" in sections["Bandwidth use"].text
    assert "Not known" not in sections["Idle share"].text
    facts = dict(zip(texts(browser, "dl.what dt"), texts(browser, "dl.what dd"), strict=True))
    assert facts["Known"] == "idle 67%, bandwidth 0%"
