"""The dashboard's scripts in a real browser: figures as text, and the window of points."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome

from tests.support.browser import Serve, chromium, live_planes
from tests.support.dashboard_page import open_dashboard

pytestmark = pytest.mark.heavy

# JavaScript values, and what is shown for them.
FIGURES: dict[str, list[tuple[str, str]]] = {
    "figure": [
        ("null", "–"),
        ("NaN", "–"),
        ("0", "0"),
        ("0.004", "<0.01"),
        ("0.25", "0.25"),
        ("9.994", "9.99"),
        ("9.996", "10.0"),
        ("99.96", "100"),
        ("9994.9", "9995"),
        ("9995", "10.0k"),
        ("999_499", "999k"),
        ("999_500", "1.00M"),
        ("2.5e9", "2.50G"),
    ],
    "count": [("null", "–"), ("0", "0"), ("12.0", "12"), ("1_234_567", "1,234,567")],
    "latency": [
        ("null", "–"),
        ("0", "0 ms"),
        ("0.0000004", "<0.01 ms"),
        ("0.0123", "12.3 ms"),
        ("0.9994", "999 ms"),
        ("0.9996", "1.00 s"),
        ("61.5", "61.5 s"),
    ],
    "percent": [("null", "–"), ("0", "0 %"), ("0.504", "50 %"), ("1", "100 %"), ("2.5", "250 %")],
    "attained": [
        ("null", "–"),
        ("NaN", "–"),
        ("0", "0 %"),
        ("0.456", "45 %"),
        ("0.9", "90.0 %"),
        ("0.99", "99.0 %"),
        ("0.9996", "99.9 %"),
        ("1", "100 %"),
    ],
    "money": [
        ("null", "–"),
        ("0", "0"),
        ("0.00001", "<0.0001"),
        ("0.0042", "0.0042"),
        ("0.256", "0.256"),
        ("12.5", "12.50"),
        ("1234.5", "1234.50"),
        ("12_345", "12.3k"),
    ],
    "duration": [
        ("null", "–"),
        ("0", "0 s"),
        ("0.25", "0.3 s"),
        ("59", "59 s"),
        ("119", "119 s"),
        ("121", "2 min"),
        ("7200", "2 h"),
        ("200_000", "2 d"),
    ],
    "bytes": [
        ("null", "–"),
        ("0", "0 B"),
        ("1023", "1023 B"),
        ("1024", "1.00 KiB"),
        ("5e9", "4.66 GiB"),
    ],
    "tick": [("'30.0 ms'", "30 ms"), ("'0 ms'", "0"), ("'10.0k'", "10k"), ("'1.50 s'", "1.5 s")],
}


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chrome]:
    with chromium(tmp_path / "profile") as made:
        yield made


@pytest.fixture
def serve() -> Iterator[Serve]:
    with live_planes() as start:
        yield start


def run_module(browser: Chrome, body: str) -> Any:
    """Run `body` in the page with some of its modules by name; what it returns comes back."""
    script = (
        "const done = arguments[arguments.length - 1];"
        "const names = ['format', 'series', 'reasons', 'chart'];"
        "Promise.all(names.map((name) => import(`/assets/${name}.js`)))"
        f".then(([format, series, reasons, chart]) => done((() => {{ {body} }})()))"
        ".catch((error) => done(String(error)));"
    )
    return browser.execute_async_script(script)


def test_figures_are_written_as_people_read_them(browser: Chrome, serve: Serve) -> None:
    open_dashboard(browser, serve(history_s=0))
    for function, cases in FIGURES.items():
        values = ", ".join(value for value, _ in cases)
        found = run_module(browser, f"return [{values}].map((value) => format.{function}(value));")
        assert dict(zip(values.split(", "), found, strict=True)) == dict(cases), function


def test_the_window_of_points_moves_on_and_asks_again_where_points_are_missing(
    browser: Chrome, serve: Serve
) -> None:
    open_dashboard(browser, serve(history_s=0))
    found = run_module(
        browser,
        """
        const window = new series.Series();
        window.replace({
          step_s: 1, window_s: 3, times_utc_s: [1, 2], ceilings: {},
          values: {a: [10, 20]}, groups: {g: [{label: "__proto__", values: [1, null]}]},
        });
        const sample = (at, values, groups = {}) => ({at_utc_s: at, values, groups});
        const results = [
          window.append(sample(2, {a: 99})),
          window.append(sample(3, {a: 30, b: 3}, {g: [["__proto__", 7], ["new", 8]]})),
          window.append(sample(4, {b: 4})),
          window.append(sample(9, {a: 1})),
          window.append(sample(1, {a: 1})),
        ];
        return {
          results, times: window.times, a: window.column("a"), b: window.column("b"),
          proto: window.column("g", "__proto__"), labels: window.labels("g"),
          none: window.column("none"),
          ranked: [0, 0.5, 1].map((q) => series.ranked([[1, null], [5, null], [3, 2]], q)),
        };
        """,
    )
    assert found == {
        "results": [True, True, True, False, False],
        "times": [2, 3, 4],
        "a": [20, 30, None],
        "b": [None, 3, 4],
        "proto": [None, 7, None],
        "labels": ["__proto__", "new"],
        "none": [None, None, None],
        "ranked": [[1, 2], [3, 2], [5, 2]],
    }


DECISIONS = [
    (
        "{kind: 'limit', subject: 'embedded', limit_before: 4, limit: 3, count: 1,"
        " reason: 'step 71 ms above 54 ms'}",
        "embedded: limit 4 → 3, step 71 ms above 54 ms",
    ),
    (
        "{kind: 'limit', subject: 'a', limit_before: null, limit: 1024, count: 1, reason: 'why'}",
        "a: limit 1,024, why",
    ),
    (
        "{kind: 'refused', subject: 'batch', limit: null, limit_before: null, count: 1,"
        " reason: 'deadline'}",
        "batch: one request refused, too late for its target",
    ),
    (
        "{kind: 'refused', subject: 'batch', limit: null, limit_before: null, count: 1200,"
        " reason: 'something new'}",
        "batch: 1,200 requests refused, something new",
    ),
    (
        "{kind: 'failed', subject: 'a', limit_before: 4, limit: 64, count: 1,"
        " reason: 'the policy failed: KeyError'}",
        "a: the policy failed: KeyError; limit 4 → 64",
    ),
]


def test_decisions_are_sentences(browser: Chrome, serve: Serve) -> None:
    open_dashboard(browser, serve(history_s=0))
    values = ", ".join(value for value, _ in DECISIONS)
    found = run_module(browser, f"return [{values}].map(reasons.sentence);")
    assert found == [text for _, text in DECISIONS]


def test_a_reference_far_above_all_else_does_not_flatten_the_chart(
    browser: Chrome, serve: Serve
) -> None:
    open_dashboard(browser, serve(history_s=0))
    found = run_module(
        browser,
        """
        const highest = (values, reference) => chart.Chart.prototype.highest.call({
          lines: [{values}, {values: [null, reference], reference: true}],
        });
        return [
          highest([1, 2, null], 5), highest([1, 2, null], 9), highest([null, 0], 9),
          series.summed([[1, null, null], [2, 3, null]]), series.summed([]),
        ];
        """,
    )
    assert found == [5, 2, 9, [3, 3, None], []]
