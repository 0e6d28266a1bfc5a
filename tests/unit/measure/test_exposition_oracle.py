"""The exposition parser against prometheus_client's, and against arbitrary bytes."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_text

from mileage.measure.exposition import BYTES_MAX, parse
from mileage.scrape.reading import read

NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True)
LABELS = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,5}", fullmatch=True)
TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.one_of(st.floats(), st.integers(-(10**15), 10**15).map(float))
SPACE = st.sampled_from([" ", "  ", "\t", " \t "])

Series = tuple[str, tuple[tuple[str, str], ...], float | None]


def series(name: str, labels: dict[str, str], value: float) -> Series:
    """A sample in a form that can be compared: NaN is None, as it is with us."""
    return name, tuple(sorted(labels.items())), None if math.isnan(value) else float(value)


def ours(data: bytes) -> list[Series]:
    """All samples that our parser finds; it finds no bad line."""
    found = parse(data)
    assert (found.lines_bad, found.truncated) == (0, False)
    return [(s.name, tuple(sorted(s.labels.items())), s.value) for s in found.samples]


def escaped(text: str) -> str:
    """A label value as the format writes it."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, Series]:
    """A valid line of the text format, with the sample that it stands for."""
    name, value = draw(NAMES), draw(VALUES)
    labels = draw(st.dictionaries(LABELS, TEXT, max_size=3))
    text = ",".join(f'{key}="{escaped(label)}"' for key, label in labels.items())
    braces = draw(st.booleans())
    if labels or braces:
        text = "{" + text + draw(st.sampled_from(["", ","] if labels else [""])) + "}"
    written = draw(st.sampled_from([repr(value), f"{value:.17g}", f"{value:.17E}"]))
    stamp = draw(st.sampled_from(["", " 1395066363000"]))
    return f"{name}{text}{draw(SPACE)}{written}{stamp}", series(name, labels, value)


@settings(deadline=None)
@given(st.lists(lines(), max_size=8))
def test_valid_lines_mean_what_prometheus_client_says(pairs: list[tuple[str, Series]]) -> None:
    text = "\n".join(line for line, _ in pairs) + "\n"
    theirs = [
        series(sample.name, sample.labels, sample.value)
        for family in read_text(text)
        for sample in family.samples
    ]
    assert ours(text.encode()) == [sample for _, sample in pairs] == theirs


@settings(deadline=None)
@given(
    st.dictionaries(TEXT, st.floats(allow_nan=False), max_size=4),
    st.lists(st.floats(0, 100), max_size=4),
)
def test_what_prometheus_client_writes_is_read_as_it_reads_it(
    gauges: dict[str, float], seconds: list[float]
) -> None:
    registry = CollectorRegistry()
    gauge = Gauge("g", "A gauge.\nTwo \\ lines.", ["model"], registry=registry)
    counter = Counter("c_total", "A counter.", ["model"], registry=registry)
    histogram = Histogram("h_seconds", "A histogram.", registry=registry)
    for model, value in gauges.items():
        gauge.labels(model).set(value)
        counter.labels(model).inc(abs(value), exemplar={"trace_id": "x"})
    for value in seconds:
        histogram.observe(value, exemplar={"trace_id": "y"})
    plain = generate_latest(registry)
    theirs = [sample for family in read_text(plain.decode()) for sample in family.samples]
    assert ours(plain) == [series(s.name, s.labels, s.value) for s in theirs]
    modern: bytes = generate_openmetrics(registry)  # type: ignore[no-untyped-call]
    families = read_openmetrics(modern.decode())  # type: ignore[no-untyped-call]
    theirs = [sample for family in families for sample in family.samples]
    assert ours(modern) == [series(s.name, s.labels, s.value) for s in theirs]


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    found = parse(data)
    assert len(found.samples) + found.lines_bad <= data.count(b"\n") + 1


PIECES = st.sampled_from(
    ['a{x="1"} 1\n', '"', "\\", "{", "}", ",", "=", " ", "#", "\n", "\\\n", "1e9", "NaN", "a", "é"]
)


@settings(deadline=None)
@given(st.lists(PIECES, max_size=60).map("".join), st.sampled_from(["vllm", "openai", "triton"]))
def test_broken_text_is_read_without_an_error(text: str, kind: str) -> None:
    parse(text.encode())
    read(kind, text.encode(), "r", 0.0)


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(b'a{x="\\"', id="escaped quotes"),
        pytest.param(b'a{x="1",x=\'', id="labels"),
        pytest.param(b"a" + b" " * 99, id="spaces"),
        pytest.param(b'{"', id="quoted names"),
        pytest.param(b"a{", id="braces"),
        pytest.param(b"\\", id="backslashes"),
        pytest.param(b"# HELP a b\n", id="comments"),
        pytest.param(b"\n", id="blank lines"),
        pytest.param(b"a 1 # {", id="exemplars"),
    ],
)
def test_the_largest_page_takes_bounded_time(piece: bytes) -> None:
    data = piece * (BYTES_MAX // len(piece))
    for page in (data, data[:60_000].replace(b"\n", b"") + b"\n"):
        start_s = time.process_time()
        parse(page)
        assert time.process_time() - start_s < 10  # seconds where quadratic time takes hours
