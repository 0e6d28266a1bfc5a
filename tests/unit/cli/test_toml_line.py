"""The line of a key in a TOML text, against texts whose lines are known."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.cli import toml_line
from mileage.cli.config_fault import KeyPath
from mileage.cli.toml_line import line_of

TEXT = '''\
# a comment
top = 1

[server]  # [slo]
port = 8080
cors_origins = [
    "https://a",

    # not the end: ]
    "https://b",
]
note = """
[slo]
ttft_s = 1
"""
# about the targets
[slo]
ttft_s = 2

[slo.models."qwen/3.5"]
itl_s = 3

[[engines]]
url = "http://a"
[[engines]]
inline = {x = 1, y = 2}
url = "http://b"
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        pytest.param(("top",), 2, id="before any table"),
        pytest.param(("server",), 4, id="a table's header"),
        pytest.param(("server", "port"), 5, id="a key"),
        pytest.param(("server", "cors_origins"), 6, id="a list of several lines"),
        pytest.param(("server", "cors_origins", 1), 6, id="an item of it: the statement's line"),
        pytest.param(("server", "note"), 12, id="a text of several lines"),
        pytest.param(("slo",), 17, id="a header that a text and a comment looked like"),
        pytest.param(("slo", "ttft_s"), 18, id="a key that a text looked like"),
        pytest.param(("slo", "models", "qwen/3.5", "itl_s"), 21, id="a name in quotes"),
        pytest.param(("engines", 0, "url"), 24, id="of the first table of a list"),
        pytest.param(("engines", 1), 25, id="the second table of a list"),
        pytest.param(("engines", 1, "inline", "y"), 26, id="of an inline table"),
        pytest.param(("engines", 1, "url"), 27, id="the last line"),
        pytest.param(("engines", 2), None, id="one table too many"),
        pytest.param(("server", "host"), None, id="absent"),
        pytest.param(("top", "x"), None, id="below a number"),
    ],
)
def test_the_line_on_which_a_statement_begins(path: KeyPath, line: int | None) -> None:
    assert line_of(TEXT, path) == line


def test_lines_are_counted_as_editors_do() -> None:
    text = TEXT.replace("\n", "\r\n").replace("https://a", "https://a\x85\u2028")
    assert line_of(text, ("engines", 1, "url")) == 27


def test_a_list_of_thousands_of_lines_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toml_line, "_PARSES_MAX", 40)
    text = "a = [\n" + "1,\n" * 3_000 + "]\nb = 2\n"
    assert line_of(text, ("a",)) is None
    assert line_of("a = 1\n" * 1 + "b = 2\n", ("b",)) == 2


statements = st.lists(
    st.sampled_from(
        ["1\n", '"x"\n', "[\n1,\n2]\n", '"""\nx = 1\n"""\n', "'''\n[y]\n'''\n", "{a = 1}\n"]
    ),
    min_size=1,
    max_size=30,
)
gaps = st.lists(st.sampled_from(["", "\n", "# x = [\n", "[t]\n\n"]), min_size=30, max_size=30)


@given(statements, gaps)
def test_every_key_of_any_text_is_found_on_its_line(values: list[str], between: list[str]) -> None:
    text, lines = "", {}
    table: tuple[str, ...] = ()
    for place, (value, gap) in enumerate(zip(values, between, strict=False)):
        if gap.startswith("[t]"):
            gap = f"[t{place}]\n\n"
            table = (f"t{place}",)
        text += gap
        lines[(*table, f"k{place}")] = text.count("\n") + 1
        text += f"k{place} = {value}"
    tomllib.loads(text)
    assert {path: line_of(text, path) for path in lines} == lines
