"""`mileage cost focus`: the sum of the file is the bill's, and nothing is written in vain."""

from __future__ import annotations

import csv
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.billed_ledger import month_of_rows
from tests.support.cost_cli import CostSite
from tests.support.usage_rows import START_S

NOW_S = START_S + 3 * 86_400


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CostSite:
    monkeypatch.setattr("time.time", lambda: float(NOW_S))
    site = CostSite(tmp_path)
    site.config("[[billing.prices]]\nusd_per_gpu_hour = 3.0\n")
    site.rows(*month_of_rows(START_S, 3 * 24), NOW_S)
    return site


@pytest.mark.parametrize("granularity", ["hour", "day"])
def test_the_sum_of_the_file_is_the_bills(site: CostSite, tmp_path: Path, granularity: str) -> None:
    out = tmp_path / "bill.csv"
    document = site.document("focus", "--out", str(out), "--granularity", granularity)
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == document["rows"]
    total = sum(Decimal(row["BilledCost"]) for row in rows)
    assert total == Decimal(document["billed_cost"])
    bill = site.document("--by", "hour", "--since", "this-month")
    assert total == Decimal(str(bill["usd_total"]))
    assert sum(int(row["x_GpuNanoseconds"]) for row in rows) == bill["gpu_ns_total"]


def test_parquet_by_its_name(site: CostSite, tmp_path: Path) -> None:
    out = tmp_path / "bill.parquet"
    assert "wrote" in site.run("focus", "--out", str(out)).stdout
    assert out.read_bytes()[:4] == b"PAR1"


def test_without_a_price_nothing_is_written(site: CostSite, tmp_path: Path) -> None:
    site.config("[billing]\npublic_prices = false\n")
    out = tmp_path / "bill.csv"
    assert "has no price since 2026-11-01" in site.run("focus", "--out", str(out), code=3).stderr
    assert not out.exists()


def test_without_use_nothing_is_written(site: CostSite, tmp_path: Path) -> None:
    out = tmp_path / "bill.csv"
    site.run("focus", "--out", str(out), "--since", "2026-10", code=3)
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        pytest.param(["--out", "a.xlsx"], "--out", id="a format that there is not"),
        pytest.param(["--out", "no/a.csv"], "--out", id="no such directory"),
        pytest.param(["--out", "a.csv", "--granularity", "week"], "--granularity", id="weeks"),
        pytest.param(["--out", "a.csv", "--since", "soon"], "--since", id="no time"),
    ],
)
def test_what_cannot_be(site: CostSite, arguments: list[str], key: str) -> None:
    assert site.refused("focus", *arguments).key == key
