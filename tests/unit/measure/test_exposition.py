"""The exposition parser: what each line means, what is skipped and counted, what is bounded."""

from __future__ import annotations

import math

import pytest

from mileage.measure.exposition import LINE_MAX, LINES_BAD_MAX, Exposition, parse


def only(text: str) -> tuple[str, dict[str, str], float | None]:
    """Name, labels and value of the one sample in the text, which has no bad line."""
    found = parse(text.encode())
    assert found.lines_bad == 0
    (sample,) = found.samples
    return sample.name, sample.labels, sample.value


@pytest.mark.parametrize(
    ("line", "name", "labels", "value"),
    [
        pytest.param("a 1", "a", {}, 1.0, id="a name and a value"),
        pytest.param("a:b_9 1", "a:b_9", {}, 1.0, id="a name with colon and digit"),
        pytest.param("  a \t 1  ", "a", {}, 1.0, id="spaces and tabs around"),
        pytest.param("a 1\r", "a", {}, 1.0, id="CRLF"),
        pytest.param("a{} 1", "a", {}, 1.0, id="empty braces"),
        pytest.param("a{ } 1", "a", {}, 1.0, id="braces with a space"),
        pytest.param('a{x="1"} 2', "a", {"x": "1"}, 2.0, id="a label"),
        pytest.param('a{x="1",y="2"}3', "a", {"x": "1", "y": "2"}, 3.0, id="no space after it"),
        pytest.param('a{x="1",} 2', "a", {"x": "1"}, 2.0, id="trailing comma"),
        pytest.param('a { x = "1" , y = "" } 2', "a", {"x": "1", "y": ""}, 2.0, id="spaces"),
        pytest.param('a{x="}"} 2', "a", {"x": "}"}, 2.0, id="brace in a value"),
        pytest.param('a{x=","} 2', "a", {"x": ","}, 2.0, id="comma in a value"),
        pytest.param('a{x="# "} 2', "a", {"x": "# "}, 2.0, id="hash in a value"),
        pytest.param(r'a{x="\"\\\n"} 2', "a", {"x": '"\\\n'}, 2.0, id="all three escapes"),
        pytest.param(r'a{x="\d"} 2', "a", {"x": r"\d"}, 2.0, id="an unknown escape stays"),
        pytest.param('a{x="\u00e9\u4e2d"} 2', "a", {"x": "\u00e9\u4e2d"}, 2.0, id="UTF-8"),
        pytest.param('{"a.b",x="1"} 2', "a.b", {"x": "1"}, 2.0, id="a quoted name"),
        pytest.param('{"a.b"} 2', "a.b", {}, 2.0, id="a quoted name alone"),
        pytest.param('a{"x.y"="1"} 2', "a", {"x.y": "1"}, 2.0, id="a quoted label name"),
        pytest.param("a 1 1395066363000", "a", {}, 1.0, id="timestamp in ms"),
        pytest.param("a 1 -1.5e3", "a", {}, 1.0, id="timestamp in s, with sign and exponent"),
        pytest.param('a_total 5 # {trace_id="x"} 0.5 1.2', "a_total", {}, 5.0, id="exemplar"),
        pytest.param("a -1.5e-3", "a", {}, -0.0015, id="negative exponent"),
        pytest.param("a .5", "a", {}, 0.5, id="no digit before the point"),
        pytest.param("a 5.", "a", {}, 5.0, id="none after it"),
        pytest.param("a +Inf", "a", {}, math.inf, id="infinity is legal"),
        pytest.param("a -inf", "a", {}, -math.inf, id="negative infinity"),
        pytest.param("a NaN", "a", {}, None, id="NaN is no value"),
        pytest.param("a nan", "a", {}, None, id="in any case"),
        pytest.param("a 1e999", "a", {}, math.inf, id="too large for a float"),
    ],
)
def test_a_sample(line: str, name: str, labels: dict[str, str], value: float | None) -> None:
    assert only(line) == (name, labels, value)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("a", id="no value"),
        pytest.param("a{}", id="no value after braces"),
        pytest.param("1 1", id="a name that begins with a digit"),
        pytest.param("a-b 1", id="a dash in the name"),
        pytest.param("a=1", id="no space after the name"),
        pytest.param("a x", id="a value that is no number"),
        pytest.param("a 1_000", id="underscores in a number"),
        pytest.param("a 0x10", id="hexadecimal"),
        pytest.param("a \u0661", id="Arabic digits"),
        pytest.param("a \u0131nf", id="dotless i"),
        pytest.param("a 1 2 3", id="too many numbers"),
        pytest.param("a 1 x", id="a timestamp that is no number"),
        pytest.param("a{x} 1", id="a label without a value"),
        pytest.param("a{x=1} 1", id="a value without quotes"),
        pytest.param('a{x="1} 1', id="an open quote"),
        pytest.param('a{x="1" 1', id="an open brace"),
        pytest.param('a{x="1"y="2"} 1', id="no comma"),
        pytest.param('a{,x="1"} 1', id="a leading comma"),
        pytest.param('a{x="1",,y="2"} 1', id="two commas"),
        pytest.param('a{x="1",x="2"} 1', id="a label twice"),
        pytest.param('a{="1"} 1', id="a label without a name"),
        pytest.param('a{x-y="1"} 1', id="a dash in an unquoted label"),
        pytest.param('a{"b"} 1', id="two names"),
        pytest.param("{} 1", id="no name"),
        pytest.param('{x="1"} 1', id="labels without a name"),
        pytest.param("<html>", id="a web page"),
    ],
)
def test_a_bad_line_is_skipped_and_counted(line: str) -> None:
    found = parse(f"before 1\n{line}\nafter 2\n".encode())
    assert [sample.name for sample in found.samples] == ["before", "after"]
    assert found.lines_bad == 1


def test_comments_and_blank_lines_are_no_samples_and_not_bad() -> None:
    found = parse(b"# HELP a text\n# TYPE a gauge\n# UNIT a s\n#\n# anything\n\n \t\n# EOF\n")
    assert (found.samples, found.lines_bad) == ((), 0)


def test_help_texts_are_kept_unescaped() -> None:
    text = "# HELP a one\\ntwo\\\\\n# HELP b\n#  HELP  c  x y\n# HELPX d e\n"
    assert parse(text.encode()).helps == {"a": "one\ntwo\\", "b": "", "c": "x y"}


def test_only_wanted_names_are_read() -> None:
    text = b"# HELP a_total A.\n# HELP z Z.\na_total 1\nz 2\nz{broken 3\na_totals 4\n"
    found = parse(text, {"a_total"})
    assert [(sample.name, sample.value) for sample in found.samples] == [("a_total", 1.0)]
    assert (found.helps, found.lines_bad) == ({"a_total": "A."}, 0)


def test_openmetrics_names_the_family_without_total() -> None:
    assert parse(b"# HELP a A.\na_total 1\n", {"a_total"}).helps == {"a": "A."}


def test_text_that_is_not_utf8_spoils_no_other_line() -> None:
    found = parse(b'a{x="\xff\xfe"} 1\nb 2\n')
    assert [sample.value for sample in found.samples] == [1.0, 2.0]


def test_a_page_over_the_size_is_read_to_its_last_whole_line() -> None:
    found = parse(b"a 1\nb 2\nc 3\n", bytes_max=10)
    assert ([sample.name for sample in found.samples], found.truncated) == (["a", "b"], True)
    assert not parse(b"a 1\nb 2\n", bytes_max=8).truncated


def test_a_page_with_too_many_samples_is_cut() -> None:
    found = parse(b"a 1\n" * 5, samples_max=3)
    assert (len(found.samples), found.truncated) == (3, True)
    assert not parse(b"a 1\n" * 3, samples_max=3).truncated


def test_a_line_that_is_too_long_is_bad() -> None:
    label = "x" * LINE_MAX
    found = parse(f'a{{x="{label}"}} 1\n# HELP a {label}\nb 2\n'.encode())
    assert [sample.name for sample in found.samples] == ["b"]
    assert (found.lines_bad, found.helps) == (1, {})


def test_a_page_of_bad_lines_is_given_up() -> None:
    found = parse(b"no metric!\n" * (LINES_BAD_MAX * 2))
    assert (found.lines_bad, found.truncated) == (LINES_BAD_MAX, True)


def test_nothing_is_an_empty_page() -> None:
    assert parse(b"") == Exposition(samples=(), helps={})
