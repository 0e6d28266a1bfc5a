"""Pages of load runs name every field of a saved run, every column and every histogram."""

from __future__ import annotations

import re

import pytest

from mileage.loadgen.run_meta import RunMeta
from mileage.loadgen.run_rows import COLUMNS
from mileage.scrape import engine_means
from tests.docs.pages import ROOT

SAVED = (ROOT / "docs/reference/saved-runs.md").read_text("utf-8")
METRICS = (ROOT / "docs/reference/engine-metrics.md").read_text("utf-8")


def code_of(page: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", page))


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(RunMeta.__struct_fields__, id="what a run was"),
        pytest.param(COLUMNS, id="columns of its rows"),
    ],
)
def test_every_name_is_on_the_page_of_saved_runs(names: tuple[str, ...]) -> None:
    assert [name for name in names if name not in code_of(SAVED)] == []


def test_every_histogram_is_on_the_page_of_engine_metrics() -> None:
    families = [f.name for each in engine_means._FAMILIES.values() for f in each]
    assert [name for name in families if name not in code_of(METRICS)] == []
