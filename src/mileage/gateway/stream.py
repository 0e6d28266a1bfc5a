"""Streams: counts and times the tokens of an engine's event stream as it passes through."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import msgspec

from mileage.core.request import Endpoint
from mileage.gateway.usage import Usage, UsageObject
from mileage.gateway.usual_event import UsualEvent
from mileage.measure.timeline import TokenClock, TokenSummary
from mileage.wire.sse import EventCutter, edges, payload

__all__ = ["NO_TOKENS", "StreamMeter", "TokenFigures", "seen"]

_FIRST, _LAST = 2, 4
"""Runs of up to so many events together are looked at one by one. Of a longer run (the engine, or
the network, was ahead of us) only the first and last ones are: the events in between are tokens,
since what is not a token comes at the beginning or at the end of a stream."""


_TEXT = b'"content":"'
_NO_TEXT = (b'"', b"")
_ABSENT = msgspec.Raw()
_EMPTY = frozenset((b"", b"null", b'""', b"[]"))


class _Delta(msgspec.Struct):
    content: msgspec.Raw = _ABSENT
    reasoning_content: msgspec.Raw = _ABSENT
    reasoning: msgspec.Raw = _ABSENT
    refusal: msgspec.Raw = _ABSENT
    tool_calls: msgspec.Raw = _ABSENT
    function_call: msgspec.Raw = _ABSENT


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: msgspec.Raw = _ABSENT


class _Nested(msgspec.Struct):
    usage: UsageObject | None = None


class _Event(msgspec.Struct):
    """A stream's event in any of the APIs: `message` and `response` hold usage in two of them."""

    choices: list[_Choice] | None = None
    usage: UsageObject | None = None
    message: _Nested | None = None
    response: _Nested | None = None
    error: msgspec.Raw = _ABSENT
    type: str | None = None


_event = msgspec.json.Decoder(_Event)
_TYPED_TOKENS = frozenset(
    (
        "content_block_delta",
        "response.output_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.refusal.delta",
        "response.function_call_arguments.delta",
    )
)
_TYPED_ENDS = frozenset(
    ("message_stop", "response.completed", "response.failed", "response.incomplete", "error")
)


class TokenFigures(NamedTuple):
    """As in RequestTimeline: of the tokens that one client was sent."""

    first_token_s: float | None = None
    last_token_s: float | None = None
    output_tokens_counted: int | None = None
    itl_mean_s: float | None = None
    itl_p99_s: float | None = None
    itl_max_s: float | None = None
    token_times: tuple[int, ...] = ()


NO_TOKENS = TokenFigures()


class StreamMeter:
    """Meters one stream. `take` returns what is to be sent on: whole events, as they came.

    With `hide_usage` the event that only carries usage, which the client did not ask for, is left
    out. Anything that cannot be decoded is passed on and counted as one token event.
    """

    __slots__ = (
        "_choices_counted",
        "_cutter",
        "_hide_usage",
        "_summary",
        "_typed",
        "_usual",
        "clock",
        "ended",
        "events",
        "failed",
        "usage",
    )

    def __init__(self, endpoint: Endpoint, *, hide_usage: bool) -> None:
        self._cutter = EventCutter()
        self._usual = UsualEvent()
        self._hide_usage = hide_usage
        self._typed = endpoint in ("responses", "messages")
        self._choices_counted = 0
        self._summary: TokenSummary | None = None
        self.clock = TokenClock()
        self.events = 0
        """Token events so far."""
        self.usage = Usage()
        self.ended = False
        """The event came that is the last one of its API."""
        self.failed = False
        """The engine sent an error event."""

    def take(self, data: bytes, now_s: float) -> bytes:
        """Meter the whole events that `data` completes, and return those to send on."""
        cutter = self._cutter
        if self._usual.matches(data) and not cutter.rest:
            self.events += 1
            self.clock.add(now_s)
            return data
        run = cutter.cut(data)
        if not run:
            return b""
        sent = self._take_run(run, now_s)
        while cutter.rest and (run := cutter.cut(b"")):  # events with other line ends
            sent += self._take_run(run, now_s)
        return sent

    def _take_run(self, run: bytes, now_s: float) -> bytes:
        separator = self._cutter.separator
        limits = (len(run), 0) if self._typed else (_FIRST, _LAST)
        first, last = edges(run, separator, *limits)
        tokens = 0
        hidden: list[tuple[int, int]] = []
        for begin, end in (*pairwise(first), *pairwise(last)):
            kind = self._classify(run[begin:end])
            if kind == "token":
                tokens += 1
            elif kind == "hide":
                hidden.append((begin, end))
        if last:
            # Events begin with their data; comments and blank lines do not.
            tokens += run.count(separator + b"data:", first[-1] - len(separator), last[0])
        if tokens:
            self.events += tokens
            self.clock.add(now_s, tokens)
            if tokens == 1 and len(first) == 2:
                self._usual.learn(run)
        return _without(run, hidden) if hidden else run

    def rest(self) -> bytes:
        """The beginning of an event that never became whole; b'' on a well-formed stream."""
        rest, self._cutter.rest = self._cutter.rest, b""
        return rest

    def summary(self) -> TokenSummary:
        """The stream in six figures; they are worked out once for all that share it."""
        summary = self._summary
        if summary is None or summary.events != self.events:
            summary = self._summary = self.clock.summary()
        return summary

    def figures(self, arrived_s: float, clock: TokenClock | None = None) -> TokenFigures:
        """What the stream's tokens say of a RequestTimeline; nothing where there were none.

        `clock` is that of a client to whom they came at other times.
        """
        if not self.events:
            return NO_TOKENS
        times = self.summary() if clock is None else clock.summary()
        clock = clock or self.clock
        assert times.first_s is not None
        assert times.last_s is not None
        return TokenFigures(
            times.first_s - arrived_s,
            times.last_s - arrived_s,
            times.events,
            times.itl_mean_s,
            times.itl_p99_s,
            times.itl_max_s,
            clock.token_times(arrived_s),
        )

    def _classify(self, event: bytes) -> str:
        """token, other, or hide (usage that only we asked for)."""
        data = payload(event)
        # Most events are told by their bytes: inside a JSON string these quotes would be escaped.
        text = data.find(_TEXT) + len(_TEXT)
        if (
            text >= len(_TEXT)
            and data[text : text + 1] not in _NO_TEXT
            and not self._typed
            and not _special(data)
        ):
            return "token"
        if not data:
            return "other"
        if data == b"[DONE]":
            self.ended = True
            return "other"
        try:
            found = _event.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return "token"
        self._take_usage(found)
        if bytes(found.error) not in _EMPTY:
            self.failed = True
            return "other"
        if self._typed:
            self.ended = self.ended or found.type in _TYPED_ENDS
            return "token" if found.type in _TYPED_TOKENS else "other"
        if not found.choices:
            return "hide" if found.usage is not None and self._hide_usage else "other"
        return "token" if any(map(_has_output, found.choices)) else "other"

    def _take_usage(self, event: _Event) -> None:
        usage = self.usage
        if event.usage is not None:
            before = usage.output_tokens
            usage.take(event.usage)
            if event.choices is not None and not event.choices:
                # llama.cpp sends one such event per choice (n > 1), each with its own output.
                if self._choices_counted and before is not None and usage.output_tokens:
                    usage.output_tokens += before
                self._choices_counted += 1
        if event.message is not None and event.message.usage is not None:
            usage.take(event.message.usage)
        if event.response is not None and event.response.usage is not None:
            usage.take(event.response.usage)


def seen(meter: StreamMeter | None) -> int | None:
    """Token events of a stream so far; None for what is no stream."""
    return None if meter is None else meter.events


def _without(run: bytes, spans: list[tuple[int, int]]) -> bytes:
    view = memoryview(run)
    kept = []
    at = 0
    for begin, end in spans:
        kept.append(view[at:begin])
        at = end
    kept.append(view[at:])
    return b"".join(kept)


def _special(data: bytes) -> bool:
    """The event may carry usage, or an error."""
    return b'"usage":{' in data or b'"error"' in data


def _has_output(choice: _Choice) -> bool:
    """The choice carries something generated."""
    delta = choice.delta
    if delta is None:
        return bytes(choice.text) not in _EMPTY
    return (
        bytes(delta.content) not in _EMPTY
        or bytes(delta.reasoning_content) not in _EMPTY
        or bytes(delta.reasoning) not in _EMPTY
        or bytes(delta.tool_calls) not in _EMPTY
        or bytes(delta.refusal) not in _EMPTY
        or bytes(delta.function_call) not in _EMPTY
    )
