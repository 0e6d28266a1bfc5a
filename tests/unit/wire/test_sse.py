"""Server-sent events as bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from mileage.wire.sse import EventCutter, edges, payload


@pytest.mark.parametrize("separator", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_whole_events_go_on_and_the_rest_waits(separator: bytes) -> None:
    cutter = EventCutter()
    assert cutter.cut(b"data: a" + separator + b"data: b") == b"data: a" + separator
    assert cutter.rest == b"data: b"
    assert cutter.cut(separator) == b"data: b" + separator
    assert cutter.rest == b""


def test_a_separator_may_be_cut_in_two() -> None:
    cutter = EventCutter()
    assert cutter.cut(b"data: a\r\n\r") == b""
    assert cutter.cut(b"\ndata: b\r\n\r\n") == b"data: a\r\n\r\ndata: b\r\n\r\n"


def test_the_first_kind_of_line_end_decides() -> None:
    cutter = EventCutter()
    assert cutter.cut(b"data: a\n\ndata: \\r\\n\n\n") == b"data: a\n\ndata: \\r\\n\n\n"
    assert cutter.separator == b"\n\n"


def test_an_endless_event_is_passed_on_in_parts() -> None:
    cutter = EventCutter()
    passed = b"".join(cutter.cut(b"x" * 100_000) for _ in range(10))
    assert len(passed) + len(cutter.rest) == 1_000_000
    assert len(cutter.rest) <= 256 * 1024


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        pytest.param(1, (1, 0, 0), id="one event"),
        pytest.param(5, (5, 0, 0), id="as many as both edges"),
        pytest.param(6, (2, 1, 3), id="one in between"),
        pytest.param(100, (2, 95, 3), id="many in between"),
    ],
)
def test_events_are_cut_at_the_edges_of_a_run(count: int, sizes: tuple[int, int, int]) -> None:
    run = b"".join(b"data: %d\n\n" % i for i in range(count))
    first, last = edges(run, b"\n\n", 2, 3)
    middle = run[first[-1] : last[0]] if last else b""
    assert (len(first) - 1, middle.count(b"\n\n"), max(0, len(last) - 1)) == sizes
    assert first[0] == 0
    assert [*first, *last][-1] == len(run)
    assert all(run[a:b].count(b"\n\n") == 1 for a, b in (*pairwise(first), *pairwise(last)))


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(b"data: {}\n\n", b"{}", id="usual form"),
        pytest.param(b"data:{}\r\n\r\n", b"{}", id="no space, CRLF"),
        pytest.param(b"event: x\ndata: a\ndata: b\n\n", b"a\nb", id="two data lines"),
        pytest.param(b": ping\n\n", b"", id="comment"),
        pytest.param(b"data: a\n: c\n\n", b"a", id="comment after the data"),
    ],
)
def test_payload(event: bytes, expected: bytes) -> None:
    assert payload(event) == expected


def test_events_with_other_line_ends_do_not_wait() -> None:
    cutter = EventCutter()
    assert cutter.cut(b": ping\r\n\r\n") == b": ping\r\n\r\n"
    assert cutter.cut(b"data: a\n\n") == b"data: a\n\n"
    assert cutter.cut(b": ping\r\n\r\n") == b": ping\r\n\r\n"
    assert cutter.rest == b""
