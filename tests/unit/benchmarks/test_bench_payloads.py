"""Canned bodies: shaped as engines shape them, and of the sizes that the page states."""

from __future__ import annotations

import json

import pytest

from benchmarks.support.payloads import (
    CHAT_MODEL,
    DONE_EVENT,
    STREAM_MODEL,
    chat_answer,
    chat_events,
    chat_request,
    http_request,
    models_answer,
    stamped_event,
    stamped_fields,
)


def test_request_and_answer_have_the_stated_sizes() -> None:
    assert 500 <= len(chat_request(CHAT_MODEL)) <= 1024
    assert 550 <= len(chat_answer()) <= 750
    assert {200 <= len(event) <= 240 for event in chat_events(128, usage=False)[:-1]} == {True}


@pytest.mark.parametrize("usage", [True, False])
def test_stream_has_its_events_then_usage_if_asked_then_done(usage: bool) -> None:
    events = chat_events(128, usage=usage)
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events[:-1]]
    assert events[-1] == DONE_EVENT
    assert [bool(chunk["choices"]) for chunk in chunks] == [True] * 128 + [False] * usage
    assert [c["choices"][0]["finish_reason"] for c in chunks[:128]] == [None] * 127 + ["stop"]
    assert ("usage" in chunks[-1]) is usage


def test_a_stream_needs_two_events() -> None:
    with pytest.raises(ValueError, match="two"):
        chat_events(1, usage=False)


def test_request_carries_what_was_asked_for() -> None:
    body = json.loads(chat_request(STREAM_MODEL, stream=True, usage=True, user="events=3"))
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert body["user"] == "events=3"
    assert "stream" not in json.loads(chat_request(CHAT_MODEL))


def test_http_request_frames_the_body() -> None:
    head, _, body = http_request(b"{}", key="k", close=True).partition(b"\r\n\r\n")
    assert body == b"{}"
    assert b"\r\nContent-Length: 2\r\n" in head
    assert b"\r\nAuthorization: Bearer k\r\nConnection: close" in head


@pytest.mark.parametrize("last", [True, False])
def test_stamp_comes_back_out_of_an_event(last: bool) -> None:
    event = stamped_event(41, 123456789, last=last)
    assert stamped_fields(event) == (41, 123456789)
    finish = json.loads(event.removeprefix(b"data: "))["choices"][0]["finish_reason"]
    assert finish == ("stop" if last else None)


def test_other_events_carry_no_stamp() -> None:
    assert stamped_fields(chat_events(2, usage=False)[0])[0] == -1


def test_models_are_listed() -> None:
    assert [card["id"] for card in json.loads(models_answer("a", "b"))["data"]] == ["a", "b"]
