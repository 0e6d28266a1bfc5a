"""docs/reference/engine-metrics.md says of each figure what the alias table does."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from mileage.core.replica import ReplicaView
from mileage.measure.engine_aliases import ALIASES, Figure, KnownKind
from mileage.measure.page_expressions import Series

HEAD = "| Figure | Computed from: the first that gives a possible value |"


def rows(kind: KnownKind) -> list[str]:
    """The table's rows for a kind of engine, as the page has them."""
    found = []
    for figure, expressions in ALIASES[kind].items():
        cells = []
        for expression in expressions:
            part = expression.left if hasattr(expression, "left") else expression
            word = part.help_word if isinstance(part, Series) else ""
            cells.append(f"`{expression}`" + (f" (if its HELP says {word})" if word else ""))
        found.append(f"| `{figure}` | {'<br>'.join(dict.fromkeys(cells))} |")
    return found


def section(page: str, kind: str) -> list[str]:
    """Lines of the page under the kind's heading."""
    _, found, rest = page.partition(f"\n## `{kind}`")
    assert found, f"no heading for {kind}"
    return rest.partition("\n## ")[0].splitlines()


@pytest.mark.parametrize("kind", ALIASES)
def test_the_page_has_the_table_of_the_kind(repository: Path, kind: KnownKind) -> None:
    page = (repository / "docs" / "reference" / "engine-metrics.md").read_text("utf-8")
    tables = [line for line in section(page, kind) if line.startswith("| ")]
    assert tables == [HEAD, *rows(kind)]


FROM_ELSEWHERE = {"compute_busy_ratio", "kv_stored_tokens", "kv_cleared_total"}
"""What a view has from the GPUs' own counters and from the events of a cache."""


def test_every_figure_is_a_field_of_the_view_and_described(repository: Path) -> None:
    page = (repository / "docs" / "reference" / "engine-metrics.md").read_text("utf-8")
    fields = {field.name for field in msgspec.structs.fields(ReplicaView)}
    figures = set(get_args(Figure))
    assert figures == fields - {"replica", "observed_s"} - FROM_ELSEWHERE
    described = {
        line.split("`")[1] for line in page.partition("\n## ")[0].splitlines() if "| `" in line
    }
    assert described == figures
