"""The dashboard's files: complete, offline, without inline code, and as small as they should be."""

from __future__ import annotations

import hashlib
import re

import msgspec
import pytest

from mileage.dashboard.assets import load_assets
from mileage.gateway.admin.findings import FindingRow
from mileage.gateway.admin.governor import DecisionRow, GovernorStatus
from mileage.gateway.admin.series import SeriesStore
from mileage.gateway.admin.spend import BudgetRow, TenantRow
from mileage.gateway.admin.status import ProcessRow, ReplicaRow
from tests.support.admin_plane import AdminPlane

ASSETS = load_assets()
OWN = sorted(name for name in ASSETS if not name.startswith("uplot"))
SCRIPTS = [name for name in OWN if name.endswith(".js")]
PAGES = [name for name in OWN if name.endswith(".html")]
LINES_MAX = 400
# uPlot 1.6.32 as npm has it; a new version needs new figures here.
UPLOT_SHA256 = {
    "uplot.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
# Ways by which a string becomes markup or code.
DANGEROUS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|document\.write|DOMParser"
    r"|srcdoc|\beval\(|new Function|javascript:|setTimeout\(\s*[\"'`]|setHTMLUnsafe"
)


def text(name: str) -> str:
    return ASSETS[name].decode("utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_everything_a_page_loads_is_in_the_package(page: str) -> None:
    loaded = re.findall(r'(?:src|href)="([^"]*)"', text(page))
    assert loaded
    known = {f"/assets/{name}" for name in ASSETS} | {"/", "/cost"}
    assert [path for path in loaded if path not in known] == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_everything_a_script_imports_is_in_the_package(script: str) -> None:
    imported = re.findall(r'\bfrom "\./([^"]+)"', text(script))
    assert len(imported) == len(re.findall(r"^import ", text(script), re.MULTILINE))
    assert [name for name in imported if name not in ASSETS] == []


def test_every_script_is_used() -> None:
    used = {"main.js", "login.js", "cost.js", "uplot.min.js"}
    for script in SCRIPTS:
        used |= set(re.findall(r'\bfrom "\./([^"]+)"', text(script)))
    assert {name for name in ASSETS if name.endswith(".js")} == used


@pytest.mark.parametrize("name", OWN)
def test_nothing_comes_from_elsewhere(name: str) -> None:
    content = text(name).replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?://|[\"'(]//|@import|url\(", content) == []


@pytest.mark.parametrize("script", [name for name in ASSETS if name.endswith(".js")])
def test_no_string_becomes_markup_or_code(script: str) -> None:
    assert DANGEROUS.findall(text(script)) == []


@pytest.mark.parametrize("page", PAGES)
def test_pages_hold_no_inline_code_or_style(page: str) -> None:
    content = text(page)
    assert re.findall(r"\son\w+=|\sstyle=|<style", content) == []
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", content))
    assert '<html lang="en">' in content


@pytest.mark.parametrize("page", PAGES)
def test_every_field_and_region_has_a_name(page: str) -> None:
    content = text(page)
    ids = set(re.findall(r'\sid="([^"]+)"', content))
    for field in re.findall(r"<input[^>]*>", content):
        name = re.search(r'id="([^"]+)"', field)
        assert "hidden" in field or (name and f'for="{name[1]}"' in content)
    named = re.findall(r'aria-(?:labelledby|describedby)="([^"]+)"', content)
    assert set(named) <= ids
    for region in re.findall(r"<[^>]*\brole=\"(?:region|group)\"[^>]*>", content):
        assert "aria-label" in region


def test_the_login_page_has_a_place_for_what_was_wrong() -> None:
    assert text("login.html").count("<!-- error -->") == 1


@pytest.mark.parametrize("name", [name for name in OWN if name.endswith((".js", ".html"))])
def test_modules_stay_small(name: str) -> None:
    assert len(text(name).splitlines()) <= LINES_MAX


def test_the_chart_library_is_the_one_that_was_published_and_has_its_licence() -> None:
    assert {name: hashlib.sha256(ASSETS[name]).hexdigest() for name in UPLOT_SHA256} == UPLOT_SHA256
    assert "MIT License" in text("uplot-LICENSE.txt")
    assert "1.6.32" in text("uplot.min.js")[:200]


def test_the_panels_ask_for_series_that_the_gateway_makes() -> None:
    plane = AdminPlane()
    plane.advance(20)
    sample = plane.app.series.latest(0.0)
    assert sample is not None
    made = set(sample.values) | set(sample.groups)
    panels = text("panels.js") + text("lines.js")
    names = r"[a-z_]+_(?:per_s|ratio)|in_flight|connections|held|limit|running|waiting"
    asked = set(
        re.findall(rf'(?:sample|series|column|labels|total|value)\(?,? ?"({names})"', panels)
    )
    assert {"requests_per_s", "kv_cache_usage_ratio", "targets_met_ratio", "limit", "held"} <= asked
    assert asked <= made
    latencies = re.findall(r'latencies\("(\w+)"\)', panels)
    assert latencies == ["ttft", "itl"]
    for name in latencies:
        suffixes = ("p50_s", "p95_s", "p99_s", "target_s")
        assert {f"{name}_{suffix}" for suffix in suffixes} <= made


@pytest.mark.parametrize(
    ("script", "pattern", "structs"),
    [
        ("tenants.js", r"\brow\.(\w+)", (TenantRow, BudgetRow)),
        ("governor.js", r"\b(?:row|governor)\.(\w+)", (DecisionRow, GovernorStatus)),
        ("findings.js", r"\brow\.(\w+)", (FindingRow,)),
        ("tables.js", r"\brow\.(\w+)", (ReplicaRow, ProcessRow)),
    ],
)
def test_the_tables_ask_for_fields_that_the_gateway_has(
    script: str, pattern: str, structs: tuple[type[msgspec.Struct], ...]
) -> None:
    asked = set(re.findall(pattern, text(script)))
    assert len(asked) > 3
    assert asked <= {name for struct in structs for name in struct.__struct_fields__}


def test_the_ranges_are_ones_that_the_gateway_keeps() -> None:
    (ranges,) = re.findall(r"const RANGES = \[(.*?)\];", text("main.js"), re.DOTALL)
    windows = [int(each.replace("_", "")) for each in re.findall(r"\[([\d_]+),", ranges)]
    assert windows == sorted(windows)
    for window_s in windows:
        document = SeriesStore().read(window_s, 0.0)
        assert window_s / document.step_s <= 1_500
