"""The load clients' reader of responses: framing, and what it refuses."""

from __future__ import annotations

import pytest

from benchmarks.support.response import BadResponseError, ResponseReader

SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n00a;x=y\r\n0123456789\r\n0\r\n\r\n"
)


@pytest.mark.parametrize(
    ("raw", "status", "body"),
    [
        pytest.param(SIZED, 200, b"hello", id="a body of known length"),
        pytest.param(CHUNKED, 503, b"abc0123456789", id="a chunked body"),
        pytest.param(
            b"HTTP/1.1 204 No\r\ncontent-length:0\r\n\r\n", 204, b"", id="an empty body is whole"
        ),
    ],
)
@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_response_is_read_however_its_bytes_are_cut(
    raw: bytes, status: int, body: bytes, step: int
) -> None:
    reader = ResponseReader()
    whole = [reader.feed(raw[at : at + step]) for at in range(0, len(raw), step)]
    assert whole == [False] * (len(whole) - 1) + [True]
    assert (reader.status, reader.body) == (status, body)


def test_reader_is_ready_for_the_next_response_after_reset() -> None:
    reader = ResponseReader()
    assert reader.feed(SIZED)
    reader.reset()
    assert reader.feed(CHUNKED)
    assert (reader.status, reader.body) == (503, b"abc0123456789")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(SIZED + b"x", "after the end", id="more than the length says"),
        pytest.param(CHUNKED + b"x", "after the end", id="more than the last chunk"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n\r\n", "neither", id="a body that ends with the connection"
        ),
        pytest.param(b"SSH-2.0-x\r\n\r\n", "no HTTP/1.1", id="another protocol"),
        pytest.param(
            CHUNKED.replace(b"3\r\nabc", b"2\r\nabc"), "longer", id="a chunk longer than its size"
        ),
        pytest.param(CHUNKED.replace(b"3\r\n", b"zz\r\n"), "no chunk size", id="a bad chunk size"),
        pytest.param(b"HTTP/1.1 200 " + b"x" * 70_000, "64 KiB", id="a head without end"),
    ],
)
def test_malformed_response_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(BadResponseError, match=reason):
        ResponseReader().feed(raw)
