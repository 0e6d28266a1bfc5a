"""Judges: a wrong answer under load must not pass."""

from __future__ import annotations

import pytest

from benchmarks.support.judges import ExactBody, SameText, StampedEvents, streamed_text, whole_text
from benchmarks.support.payloads import DONE_EVENT, chat_answer, chat_events, stamped_event
from benchmarks.support.response import ResponseReader


def response(body: bytes, status: int = 200) -> ResponseReader:
    reader = ResponseReader()
    assert reader.feed(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
    return reader


def stamped(*numbers: int, count: int) -> bytes:
    return b"".join(stamped_event(n, 7, last=n == count - 1) for n in numbers)


@pytest.mark.parametrize(
    ("body", "status", "complaint"),
    [
        pytest.param(b"abcdef", 200, None, id="the expected bytes"),
        pytest.param(b"abXdef", 200, "byte 2", id="one byte differs"),
        pytest.param(b"abc", 200, "3 bytes, not 6", id="cut short"),
        pytest.param(b"abcdef", 500, "status 500", id="another status"),
    ],
)
def test_exact_body(body: bytes, status: int, complaint: str | None) -> None:
    found = ExactBody(b"abcdef").complaint(response(body, status))
    assert found is None if complaint is None else found is not None and complaint in found


def test_same_text_accepts_another_encoding_and_refuses_another_text() -> None:
    judge = SameText(b'{"choices":[{"message":{"content":"hi"}}]}', whole_text)
    assert judge.complaint(response(b'{ "choices": [{"message": {"content": "hi"}}]}')) is None
    assert judge.complaint(response(b'{"choices":[{"message":{"content":"ho"}}]}')) is not None
    assert judge.complaint(response(b"<html>")) is not None
    assert judge.complaint(response(b'{"choices":[]}')) is not None


def test_text_of_a_stream_is_that_of_its_deltas() -> None:
    assert streamed_text(chat_events(3, usage=True).body) == " word0001"
    assert whole_text(chat_answer()).startswith("Then look")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param(stamped(0, 1, 2, count=3) + DONE_EVENT, None, id="all events in order"),
        pytest.param(stamped(0, 2, count=3) + DONE_EVENT, "in place of", id="one is missing"),
        pytest.param(stamped(1, 0, 2, count=3) + DONE_EVENT, "in place of", id="out of order"),
        pytest.param(stamped(0, 1, count=3) + DONE_EVENT, "2 of 3", id="it ends early"),
        pytest.param(stamped(0, 1, 2, count=3), "seen: False", id="no DONE"),
        pytest.param(stamped(0, 1, 2, count=3) + DONE_EVENT + b"data", "3 of 3", id="a rest"),
        pytest.param(DONE_EVENT + stamped(0, 1, 2, count=3), "in place", id="events after DONE"),
        pytest.param(
            stamped(0, 1, 2, count=3).replace(b"assistant", b"user") + b"data: {}\n\n" + DONE_EVENT,
            "event -1",
            id="a foreign event",
        ),
        pytest.param(
            stamped(0, 1, 2, count=3).replace(b'"index":0', b'"index":1') + DONE_EVENT,
            "changed",
            id="other bytes round the stamp",
        ),
    ],
)
def test_stamped_events(body: bytes, complaint: str | None) -> None:
    judge = StampedEvents(3, lambda _number, _delay, _now: None)
    reader = response(body)
    judge.arrived(reader, 10)
    found = judge.complaint(reader)
    assert found is None if complaint is None else found is not None and complaint in found


def test_stamped_events_are_timed_one_by_one_and_judged_afresh_for_each_answer() -> None:
    seen: list[tuple[int, int, int]] = []
    judge = StampedEvents(2, lambda number, delay, now: seen.append((number, delay, now)))
    for _ in range(2):
        reader = ResponseReader()
        reader.feed(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n")
        for now_ns, event in ((10, stamped(0, count=2)), (20, stamped(1, count=2) + DONE_EVENT)):
            reader.feed(b"%x\r\n%s\r\n" % (len(event), event))
            judge.arrived(reader, now_ns)
        reader.feed(b"0\r\n\r\n")
        assert judge.complaint(reader) is None
    assert seen == [(0, 3, 10), (1, 13, 20)] * 2
