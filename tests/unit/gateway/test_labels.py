"""Labels: what a header says, in one spelling, and how many different ones are told apart."""

from __future__ import annotations

import pytest

from mileage.gateway.labels import (
    NAMES_MAX,
    PAIRS_MAX,
    SETS_MAX,
    VALUES_MAX,
    LabelBook,
)
from mileage.gateway.refusals import Refusal

NOON_NS = 1_800_000_000 * 10**9 // (86_400 * 10**9) * 86_400 * 10**9 + 43_200 * 10**9
DAY_NS = 86_400 * 10**9


def read(header: bytes, book: LabelBook | None = None, at_utc_ns: int = NOON_NS) -> str | None:
    return (book or LabelBook()).read(header, at_utc_ns)


@pytest.mark.parametrize(
    ("header", "labels"),
    [
        pytest.param(b"team=search", "team=search", id="one"),
        pytest.param(b"team=search,env=prod", "env=prod,team=search", id="sorted by name"),
        pytest.param(b" team=search , env=prod,", "env=prod,team=search", id="spaces and commas"),
        pytest.param(b"a=b,a-1=c", "a=b,a-1=c", id="sorted by name, not by text"),
        pytest.param(b"job=s3://x/1:2@a+b.c", "job=s3://x/1:2@a+b.c", id="paths and ids"),
        pytest.param(b"a=%b" % (b"x" * 63), "a=" + 63 * "x", id="a value of the longest"),
        pytest.param(b"", None, id="an empty header"),
        pytest.param(b" , ", None, id="nothing between commas"),
    ],
)
def test_labels_have_one_spelling(header: bytes, labels: str | None) -> None:
    assert read(header) == labels


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"team", id="no value"),
        pytest.param(b"team=", id="an empty value"),
        pytest.param(b"=search", id="no name"),
        pytest.param(b"1a=b", id="a name that begins with a digit"),
        pytest.param(b"a=b=c", id="two equals signs"),
        pytest.param(b"a=b c", id="a space inside"),
        pytest.param(b"a=b;c", id="a semicolon"),
        pytest.param(b"a=\xc3\xa4", id="a letter beyond ASCII"),
        pytest.param(b"a=b\x00", id="a control character"),
        pytest.param(b"a=x,b=y,a=z", id="a name twice"),
        pytest.param(b"a=%b" % (b"x" * 64), id="a value too long"),
        pytest.param(b"%b=x" % (b"a" * 33), id="a name too long"),
        pytest.param(b",".join(b"n%d=x" % n for n in range(PAIRS_MAX + 1)), id="too many"),
    ],
)
def test_what_is_no_list_of_labels_is_refused_by_the_headers_name(header: bytes) -> None:
    with pytest.raises(Refusal, match="x-mileage-labels") as refused:
        read(header)
    assert (refused.value.status, refused.value.param) == (400, "x-mileage-labels")


def test_an_id_in_a_label_spoils_only_that_label() -> None:
    book = LabelBook()
    seen = {read(b"team=search,job=%d" % n, book) for n in range(VALUES_MAX + 50)}
    assert len(seen) == VALUES_MAX + 1
    assert "job=other,team=search" in seen
    assert read(b"team=search,job=0", book) == "job=0,team=search"


def test_names_past_the_bound_are_one_label() -> None:
    book = LabelBook()
    for n in range(NAMES_MAX):
        read(b"n%d=x" % n, book)
    assert read(b"new=x,n0=x", book) == "n0=x,other=other"


def test_sets_past_the_bound_are_one_label() -> None:
    book = LabelBook()
    sets = {read(b"a=%d,b=%d" % (n % 64, n // 64), book) for n in range(SETS_MAX + 64)}
    assert len(sets) == SETS_MAX + 1
    assert read(b"a=%d,b=%d" % (63, SETS_MAX // 64), book) == "other=other"
    assert read(b"a=1,b=1", book) == "a=1,b=1"


def test_each_day_begins_with_no_label() -> None:
    book = LabelBook()
    for n in range(VALUES_MAX):
        read(b"job=%d" % n, book)
    assert read(b"job=new", book) == "job=other"
    assert read(b"job=new", book, NOON_NS + DAY_NS) == "job=new"


def test_headers_without_end_do_not_fill_the_memory() -> None:
    book = LabelBook()
    for n in range(20_000):
        read(b"job=%d" % n, book)
    assert len(book._known) < 5_000
    assert sum(map(len, book._values.values())) == VALUES_MAX
