"""TokenStream: the tokens of one event stream, counted at the moments at which they came."""

from __future__ import annotations

from array import array

from mileage.loadgen.answer_json import TOKEN, NotJsonError, read_facts
from mileage.wire.sse import EventCutter, payload

__all__ = ["TokenStream"]

_EVENT_BYTES_MAX = 256 * 1024
"""What the cutter holds of one event."""


class TokenStream:
    """Reads an OpenAI event stream, in whatever pieces it comes.

    A token event is one that carries text: content, reasoning, or a part of a tool call. Events of
    a role, a reason to finish or usage alone are none.
    """

    __slots__ = (
        "_cutter",
        "cached_tokens",
        "complaint",
        "done",
        "failure",
        "finished",
        "output_tokens",
        "prompt_tokens",
        "token_events",
        "token_times_s",
    )

    def __init__(self) -> None:
        self._cutter = EventCutter()
        self.token_times_s = array("d")
        """One moment for each read that brought tokens."""
        self.token_events = array("I")
        """Token events at each of these moments."""
        self.finished = False
        """A choice told why it ended."""
        self.done = False
        """[DONE] came."""
        self.failure: bytes | None = None
        """The first error event."""
        self.complaint: str | None = None
        """What is wrong with the stream's form."""
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.output_tokens: int | None = None

    def feed(self, data: bytes, at_s: float) -> None:
        """Take what came at `at_s`."""
        cutter = self._cutter
        run = cutter.cut(data)
        if not run:
            return
        separator = cutter.separator
        tokens = 0
        if not run.endswith(separator):  # the cutter holds no more of it
            self.complaint = self.complaint or f"an event above {_EVENT_BYTES_MAX} bytes"
        if run.find(separator) == len(run) - len(separator):
            tokens = self._read(payload(run))
        else:
            for event in run.split(separator):
                if event:
                    tokens += self._read(payload(event + b"\n\n"))
        if tokens:
            self.token_times_s.append(at_s)
            self.token_events.append(tokens)

    def end(self, at_s: float) -> None:
        """The answer is over: what is left without its empty line is an event, too."""
        if self._cutter.rest:
            self.feed(b"\n\n" if b"\r" not in self._cutter.rest else b"\r\n\r\n", at_s)

    def _read(self, data: bytes) -> int:
        """Read one event's data; gives 1 where it carries text."""
        if not data:
            return 0  # a comment, such as a ping
        if data == b"[DONE]":
            self.done = True
            return 0
        try:
            facts = read_facts(data)
        except NotJsonError as error:
            self.complaint = self.complaint or f"an event that is no JSON object: {error}"
            return 0
        if facts is TOKEN:  # what nearly all events are
            return 1
        if facts.failed:
            self.failure = self.failure or data
            return 0
        if facts.prompt_tokens is not None:
            self.prompt_tokens = facts.prompt_tokens
        if facts.output_tokens is not None:
            self.output_tokens = facts.output_tokens
        if facts.cached_tokens is not None:
            self.cached_tokens = facts.cached_tokens
        if facts.finished:
            self.finished = True
        return 1 if facts.carries_text else 0
