"""The page of trace formats names every field, column name and key that there is."""

from __future__ import annotations

import re

import pytest

from mileage.cli.trace_catalogue import CATALOGUE
from mileage.workload.readers.any_table import ALIASES
from mileage.workload.synthetic import spelling
from mileage.workload.synthetic.config import SyntheticConfig
from mileage.workload.trace_request import TraceRequest
from tests.docs.pages import ROOT

REFERENCE = (ROOT / "docs/reference/traces.md").read_text("utf-8")
GUIDE = (ROOT / "docs/how-to/traces.md").read_text("utf-8")
CODE = set(re.findall(r"`([^`\n]+)`", REFERENCE))
WORDS = {word for code in CODE for word in re.findall(r"[\w-]+", code)}


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(TraceRequest.__struct_fields__, id="fields of a request"),
        pytest.param(tuple(spelling.KEYS), id="keys of the spelling"),
        pytest.param(tuple(spelling._ARRIVAL_KEYS), id="keys of arrivals"),
        pytest.param(tuple(spelling._ARRIVALS), id="kinds of arrivals"),
        pytest.param(tuple(spelling._LENGTH_FIELDS), id="kinds of lengths"),
        pytest.param(SyntheticConfig.__struct_fields__, id="keys of the file"),
    ],
)
def test_every_name_is_on_the_page(names: tuple[str, ...]) -> None:
    assert [name for name in names if name not in WORDS] == []


def test_the_table_of_columns_is_that_of_the_reader() -> None:
    table = REFERENCE.split("<!-- columns -->")[1].split("<!-- /columns -->")[0]
    rows = [
        (field, tuple(re.findall(r"`([^`]+)`", names)))
        for field, names in re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)
    ]
    assert rows == list(ALIASES.items())


def test_every_data_set_is_in_the_guide_with_its_licence() -> None:
    table = GUIDE.split("| Name | Licence |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| ([a-z0-9, -]+) \| ([\w.-]+)", table, re.MULTILINE)
    found = {name.strip(): licence for names, licence in rows for name in names.split(",")}
    assert found == {name: known.licence for name, known in CATALOGUE.items()}
