"""Judges: each watches the answers on one connection and says what is wrong with one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Protocol

from benchmarks.support.payloads import DONE_EVENT, stamped_event, stamped_fields
from benchmarks.support.response import ResponseReader

__all__ = ["ExactBody", "Judge", "SameText", "StampedEvents", "streamed_text", "whole_text"]


class Judge(Protocol):
    """Watches one answer after another on one connection."""

    def arrived(self, reader: ResponseReader, now_ns: int) -> None:
        """More of the answer arrived."""

    def complaint(self, reader: ResponseReader) -> str | None:
        """The answer is whole: what is wrong with it. Makes ready for the next one."""


class ExactBody:
    """Accepts status 200 with exactly the expected body: every event, in order, nothing else."""

    def __init__(self, expected: bytes) -> None:
        self._expected = expected

    def arrived(self, reader: ResponseReader, now_ns: int) -> None:
        """Nothing to note on the way."""

    def complaint(self, reader: ResponseReader) -> str | None:
        """Where the body differs first."""
        if reader.status != 200:
            return f"status {reader.status}: {reader.body[:200]!r}"
        body = reader.body
        if body == self._expected:
            return None
        for at, (seen, wanted) in enumerate(zip(body, self._expected, strict=False)):
            if seen != wanted:
                return f"body differs at byte {at}: {body[at : at + 60]!r}"
        return f"body of {len(body)} bytes, not {len(self._expected)}"


class SameText:
    """Accepts an answer that a gateway encoded anew, as long as it says the same text.

    `read` gives the text of a body: `whole_text` or `streamed_text`.
    """

    def __init__(self, expected: bytes, read: Callable[[bytes], str]) -> None:
        self._read = read
        self._expected = read(expected)

    def arrived(self, reader: ResponseReader, now_ns: int) -> None:
        """Nothing to note on the way."""

    def complaint(self, reader: ResponseReader) -> str | None:
        """Status or text, where they are wrong."""
        if reader.status != 200:
            return f"status {reader.status}: {reader.body[:200]!r}"
        try:
            text = self._read(reader.body)
        except (ValueError, LookupError) as error:
            return f"not readable ({error}): {reader.body[:200]!r}"
        return None if text == self._expected else f"other text: {text[:100]!r}"


class StampedEvents:
    """Accepts the local engine's events, each stamped with its number and the time it was written.

    `on_event(number, delay_ns, now_ns)` is called for each; the delay is from the engine's write
    to the client's read (both read the same clock of the same machine).
    """

    def __init__(self, events: int, on_event: Callable[[int, int, int], None]) -> None:
        self._events, self._on_event = events, on_event
        self._begin()

    def _begin(self) -> None:
        self._seen_parts = 0
        self._rest = b""
        self._next = 0
        self._wrong: str | None = None
        self._ended = False

    def arrived(self, reader: ResponseReader, now_ns: int) -> None:
        """Check the events that are new."""
        parts = reader.parts[self._seen_parts :]
        self._seen_parts += len(parts)
        *events, self._rest = (self._rest + b"".join(parts)).split(b"\n\n")
        for event in events:
            if event + b"\n\n" == DONE_EVENT:
                self._ended = True
                continue
            number, written_ns = stamped_fields(event)
            if number != self._next or self._ended:
                self._wrong = self._wrong or f"event {number} in place of {self._next}"
            elif event + b"\n\n" != stamped_event(
                number, written_ns, last=number == self._events - 1
            ):
                self._wrong = self._wrong or f"event {number} was changed: {event[:300]!r}"
            self._next += 1
            self._on_event(number, now_ns - written_ns, now_ns)

    def complaint(self, reader: ResponseReader) -> str | None:
        """The first thing that was wrong."""
        wrong, seen, ended, rest = self._wrong, self._next, self._ended, self._rest
        status = reader.status
        self._begin()
        if status != 200:
            return f"status {status}: {reader.body[:200]!r}"
        if wrong is not None:
            return wrong
        if seen != self._events or not ended or rest:
            return f"the stream ended after {seen} of {self._events} events, [DONE] seen: {ended}"
        return None


def whole_text(body: bytes) -> str:
    """The text of a whole answer; raises ValueError or LookupError where it has none."""
    return str(json.loads(body)["choices"][0]["message"]["content"])


def streamed_text(body: bytes) -> str:
    """The text that a stream's deltas make; raises ValueError where an event is no JSON."""
    text: list[str] = []
    for event in body.split(b"\n\n"):
        data = event.strip().removeprefix(b"data: ")
        if data and data != b"[DONE]":
            choices = json.loads(data)["choices"]
            text.extend(choice["delta"].get("content") or "" for choice in choices)
    return "".join(text)
