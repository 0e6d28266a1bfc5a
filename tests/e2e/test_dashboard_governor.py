"""The governor on the dashboard, in a real browser: what it does, and what is missing or broken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from mileage.control.decisions import Decision
from mileage.core.slo import Slo, SloConfig
from mileage.gateway.admin.reload import ConfigStatus
from tests.support.browser import LivePlane, Serve, chromium, live_planes
from tests.support.dashboard_page import complaints, open_dashboard, replica_row, text, texts, wait

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


def decide(plane: LivePlane, decision: Decision) -> None:
    """Let the first worker's governor have decided this, just now."""
    governor = plane.fleet.governors()[0]
    plane.do(lambda: governor.decisions.add(decision))


def fact(browser: Chrome, title: str) -> str:
    for row in browser.find_elements(By.CSS_SELECTOR, "#governor div"):
        name, _, value = row.text.partition("\n")
        if name == title:
            return value
    raise AssertionError(f"no row {title}")


def test_targets_limits_and_what_is_held_are_shown(browser: Chrome, serve: Serve) -> None:
    plane = serve(replicas=("a",))
    open_dashboard(browser, plane)
    assert re.fullmatch(r"[\d.]+ %", text(browser, "#tile-targets .tile-text"))
    assert text(browser, "#tile-targets .tile-detail") == "of TTFT and ITL"
    assert texts(browser, "#chart-targets .legend span") == ["all", "ttft", "itl"]
    assert texts(browser, "#chart-itl .legend b")[-1] == "40.0 ms"
    assert texts(browser, "#chart-limits .legend span") == ["limit", "in flight", "held"]
    limit, in_flight, held = texts(browser, "#chart-limits .legend b")
    assert 40 <= int(limit) <= 64
    assert int(in_flight) >= 0
    assert int(held) >= 0
    assert int(replica_row(browser, "a")["Limit"]) <= 64
    assert fact(browser, "Governor") == "acts"
    assert fact(browser, "Targets") == "TTFT 250 ms, ITL 40 ms"
    assert re.match(r"\d+ answer shared", fact(browser, "Merged"))
    assert complaints(browser) == []


def test_replicas_are_told_apart_and_many_are_added_up(browser: Chrome, serve: Serve) -> None:
    few = serve(replicas=("a", "b"))
    open_dashboard(browser, few)
    assert texts(browser, "#chart-limits .legend span") == ["a", "b"]
    for figures in texts(browser, "#chart-limits .legend b"):
        assert re.fullmatch(r"\d+ · \d+ · \d+", figures)
    many = serve(replicas=tuple("abcdefgh"))
    open_dashboard(browser, many)
    assert texts(browser, "#chart-limits .legend span") == ["limit", "in flight", "held"]
    assert int(texts(browser, "#chart-limits .legend b")[0]) > 8 * 39


def test_decisions_come_in_live_the_newest_first(browser: Chrome, serve: Serve) -> None:
    plane = serve(load=0.0, history_s=5)
    open_dashboard(browser, plane)
    assert text(browser, "#decisions") == "None yet."
    now_s = plane.fleet.now_s
    for at_s, limit in ((now_s + 1, 4), (now_s + 2, 3)):
        reason = "step 71 ms above 54 ms"
        decide(plane, Decision(at_s=at_s, kind="limit", subject="h", reason=reason, limit=limit))
    newest = "h: limit 4 → 3, step 71 ms above 54 ms"
    wait(browser, lambda: texts(browser, "#decisions td span")[:1] == [newest])
    assert texts(browser, "#decisions td span")[1] == "h: limit 4, step 71 ms above 54 ms"
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", at) for at in texts(browser, "#decisions tbody th"))
    assert complaints(browser) == []


def test_spend_and_budgets_are_shown_by_tenant(browser: Chrome, serve: Serve) -> None:
    plane = serve()
    fleet = plane.fleet
    plane.do(lambda: fleet.budget("search", "usd", "day", 50 * 10**9, 31 * 10**9, reserved=10**9))
    plane.do(lambda: fleet.budget("batch", "tokens", "hour", 1_000, 1_000))
    open_dashboard(browser, plane)
    wait(browser, lambda: len(texts(browser, "#budgets li")) == 2)
    search, batch = browser.find_elements(By.CSS_SELECTOR, "#budgets li")
    name, left, detail = search.text.split("\n")
    assert (name, left) == ("search", "18.00 USD left")
    assert re.fullmatch(
        r"31.00 of 50 USD per day · 1.00 reserved · renews in \d+ (h|min|s)", detail
    )
    assert batch.text.split("\n")[1] == "0 tokens left"
    assert batch.get_attribute("class") == "bad"
    bar = search.find_element(By.CSS_SELECTOR, ".bar-track")
    spent = search.find_element(By.CSS_SELECTOR, ".spent")
    assert spent.size["width"] == pytest.approx(0.62 * bar.size["width"], abs=2)
    row = texts(browser, "#tenants tbody tr:first-child > *")
    assert row[0] == "search"
    assert re.fullmatch(r"\d+ %", row[6])
    assert re.fullmatch(r"[\d.]+", row[7])
    assert text(browser, "#tenants-note") == ""
    assert complaints(browser) == []


def test_what_is_not_set_is_named(browser: Chrome, serve: Serve) -> None:
    plane = serve(slo=SloConfig(), priced=False)
    open_dashboard(browser, plane)
    wait(browser, lambda: text(browser, "#chart-targets .empty").startswith("No targets set"))
    assert text(browser, "#chart-targets .empty") == "No targets set: [slo] ttft_s, itl_s"
    assert text(browser, "#tile-targets .tile-text") == "–"
    assert text(browser, "#tile-targets .tile-detail") == "none set"
    assert texts(browser, "#chart-ttft .legend span") == ["p99", "p95", "p50"]
    assert text(browser, "#budgets") == "No budgets set: [[tenants.NAME.budgets]]"
    assert text(browser, "#tenants-note") == "No prices set: [costs] usd_per_gpu_hour, models."
    assert {row.split()[-1] for row in texts(browser, "#tenants tbody tr")} == {"–"}
    assert complaints(browser) == []


def test_targets_of_models_are_told_by_name(browser: Chrome, serve: Serve) -> None:
    plane = serve(slo=SloConfig(ttft_s=2.0, models={"small": Slo(ttft_s=0.2, itl_s=0.05)}))
    open_dashboard(browser, plane)
    assert texts(browser, "#chart-ttft .legend span")[3:] == ["target", "target small"]
    assert text(browser, "#tile-targets .tile-detail") == "of 2 models"
    assert fact(browser, "Targets") == "TTFT 2 s; small: TTFT 200 ms, ITL 50 ms"


def test_what_is_broken_is_told_at_the_top_until_it_is_not(browser: Chrome, serve: Serve) -> None:
    plane = serve()
    open_dashboard(browser, plane)
    assert not browser.find_element(By.ID, "banners").is_displayed()
    first, second = plane.fleet.governors()
    first.failure = "ValueError: a queue that is not there"
    second.policy_failed.add("h100-b:8000")
    wait(browser, lambda: len(texts(browser, ".banner")) == 2)
    failed, policy = texts(browser, ".banner")
    assert failed.startswith(
        "The governor has failed on 1 of 2 workers and lets everything through"
    )
    assert "ValueError: a queue that is not there" in failed
    assert "has failed for h100-b:8000 and was left out" in policy
    assert fact(browser, "Governor") == "has failed"
    assert replica_row(browser, "h100-b:8000")["Limit"] == "–\nits policy failed"
    first.failure = None
    second.policy_failed.clear()
    wait(browser, lambda: not browser.find_element(By.ID, "banners").is_displayed())
    plane.fleet.config = ConfigStatus(
        version=3, since_utc_s=0, read_utc_s=0, error="m.toml:3: slo.ttft_s is 0"
    )
    wait(browser, lambda: len(texts(browser, ".banner")) == 1)
    assert text(browser, ".banner") == (
        "The last reload was refused, version 3 stays in force: m.toml:3: slo.ttft_s is 0"
    )
    assert complaints(browser) == []


def test_a_governor_that_only_observes_says_what_it_would_do(browser: Chrome, serve: Serve) -> None:
    plane = serve(mode="observe", load=1.4)
    open_dashboard(browser, plane)
    wait(browser, lambda: len(texts(browser, ".banner")) == 1)
    assert re.search(
        r"only observes.*would have held [\d,]+ requests and refused [\d,]+\.$",
        text(browser, ".banner"),
    )
    assert fact(browser, "Governor") == "observes, and changes nothing"
    assert text(browser, "#tile-held .tile-text") == "0"


def test_tenants_and_reasons_are_text_and_nothing_else(browser: Chrome, serve: Serve) -> None:
    plane = serve(
        tenants=(MARKUP, "__proto__", "constructor"),
        slo=SloConfig(models={MARKUP: Slo(ttft_s=0.1)}),
    )
    fleet = plane.fleet
    plane.do(lambda: fleet.budget(MARKUP, "usd", "day", 10, 1))
    plane.do(lambda: fleet.budget("__proto__", "usd", "day", 10, 1))
    fleet.governors()[0].failure = MARKUP
    decide(
        plane,
        Decision(
            at_s=fleet.now_s + 5, kind="refused", subject=MARKUP, reason=MARKUP, detail=MARKUP
        ),
    )
    open_dashboard(browser, plane)
    wait(browser, lambda: f"{MARKUP}: one request refused, {MARKUP}" in text(browser, "#decisions"))
    assert set(texts(browser, "#tenants tbody th")) == {MARKUP, "__proto__", "constructor"}
    assert texts(browser, "#budgets b") == [MARKUP, "__proto__"]
    assert MARKUP in text(browser, ".banner")
    assert texts(browser, "#chart-ttft .legend span")[-1].startswith("target </td>")
    assert browser.find_elements(By.CSS_SELECTOR, "main img, .banners img") == []
    assert browser.execute_script("return window.pwned") is None
    assert browser.execute_script("return Object.prototype.tenant") is None
    assert complaints(browser) == []
