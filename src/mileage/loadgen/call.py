"""Call: one request on its way, from the moment it is taken up to its record."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable

from mileage.loadgen.answer_json import Facts
from mileage.loadgen.connection import LoadConnection
from mileage.loadgen.judgement import Judgement, judge_status, judge_stream, judge_whole
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.token_stream import TokenStream
from mileage.measure.call_record import CallOutcome, CallRecord, Phase
from mileage.wire.upstream import MALFORMED, BreakKind, Carrier

__all__ = ["Call"]

_ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""Of an answer that is read whole; a batch of embeddings has megabytes."""
_ERROR_BYTES_MAX = 64 * 1024
_NO_TIMES: array[float] = array("d")
_NO_EVENTS: array[int] = array("I")
_REQUEST_ID = b"x-request-id"
_REQUEST_ID_CHARS_MAX = 200
_CODING_CHARS_MAX = 40
_BROKEN: dict[BreakKind, CallOutcome] = {
    "connect": "connect",
    "timeout": "timeout",
    "broken": "broken",
    "busy": "unsent",
}


class Call:
    """Receives the answer to one planned call, and times it.

    `over` is called once, from the event loop, when `outcome` is known. A call that is sent again
    forgets what it knew of its earlier try, but for its schedule and the count of its attempts.
    """

    __slots__ = (
        "_cancelling",
        "_connected_s",
        "_facts",
        "_kept",
        "_kept_bytes",
        "_kind",
        "_over",
        "_request_id",
        "_status",
        "_stream",
        "_zero_s",
        "answered_s",
        "attempts",
        "ended_s",
        "error",
        "outcome",
        "phase",
        "planned",
        "scheduled_s",
        "sent_s",
        "taken_s",
        "target",
        "upstream",
    )

    def __init__(
        self,
        planned: PlannedCall,
        *,
        scheduled_s: float,
        taken_s: float | None,
        phase: Phase,
        zero_s: float,
        over: Callable[[Call], None],
    ) -> None:
        self.planned = planned
        self.scheduled_s, self.taken_s, self.phase = scheduled_s, taken_s, phase
        self._zero_s, self._over = zero_s, over
        self.attempts = 0
        self._cancelling: asyncio.TimerHandle | None = None
        self.forget()

    def forget(self) -> None:
        """Be as before the first try."""
        self.upstream: Carrier | None = None
        self.outcome: CallOutcome | None = None
        self.target: int | None = None
        self.error: str | None = None
        self.sent_s: float | None = None
        self.answered_s: float | None = None
        self.ended_s: float | None = None
        self._connected_s: float | None = None
        self._request_id: str | None = None
        self._status: int | None = None
        self._stream: TokenStream | None = None
        self._facts: Facts | TokenStream | None = None
        self._kind = b""
        self._kept: list[bytes] = []
        self._kept_bytes = 0

    @property
    def tokens_came(self) -> bool:
        """A part of a stream's text is here already."""
        return self._stream is not None and bool(self._stream.token_times_s)

    @property
    def heard_s(self) -> float | None:
        """When a byte of the answer came last; None where none has, or the call is over."""
        carrier = self.upstream
        heard_s = carrier.heard_s if isinstance(carrier, LoadConnection) else None
        return None if heard_s is None else heard_s - self._zero_s

    @property
    def _bytes_max(self) -> int:
        """Of a stream that is none, and of a refusal, only an error's message is looked for."""
        whole = self._status == 200 and not self.planned.stream
        return _ANSWER_BYTES_MAX if whole else _ERROR_BYTES_MAX

    # --- told by its connection ---------------------------------------------------------------

    def request_sent(self, now_s: float, connected_s: float | None) -> None:
        """The kernel has the whole request."""
        if self.sent_s is not None:
            self.attempts += 1  # the pool's own retry, on a connection that had been closed
        self.sent_s = now_s - self._zero_s
        if connected_s is not None:
            self._connected_s = connected_s - self._zero_s
        leave_after_s = self.planned.cancel_after_s
        if leave_after_s is not None and self._cancelling is None:
            loop = asyncio.get_running_loop()
            self._cancelling = loop.call_later(leave_after_s, self.give_up, "cancelled", None)

    def head_received(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The answer's head."""
        self.answered_s = time.monotonic() - self._zero_s
        self._status = status
        kind = coding = b""
        for name, value in headers:
            if name == b"content-type":
                kind = value
            elif name == b"content-encoding":
                coding = value
            elif name == _REQUEST_ID:
                self._request_id = value[:_REQUEST_ID_CHARS_MAX].decode("latin-1")
        self._kind = kind
        if status == 200 and self.planned.stream and kind.lower().startswith(b"text/event-stream"):
            self._stream = self._facts = TokenStream()
            if coding.lower() not in (b"", b"identity"):  # though nobody asked for it
                name_of = coding[:_CODING_CHARS_MAX].decode("latin-1")
                self._stream.complaint = f"its content is encoded: {name_of}"

    def body_received(self, data: bytes, now_s: float) -> None:
        """A part of the answer."""
        if self._stream is not None:
            self._stream.feed(data, now_s - self._zero_s)
            return
        self._kept_bytes += len(data)
        if self._kept_bytes <= self._bytes_max:
            self._kept.append(data)
        else:
            self._kept = []

    def answer_ended(self, data: bytes, now_s: float) -> None:
        """The answer is complete."""
        if data:
            self.body_received(data, now_s)
        self.ended_s = now_s - self._zero_s
        planned, body = self.planned, b"".join(self._kept)
        if self._stream is not None:
            self._stream.end(self.ended_s)
            judgement = judge_stream(self._stream, planned)
        elif self._status == 200:
            if self._kept_bytes > _ANSWER_BYTES_MAX and not planned.stream:
                judgement = Judgement("malformed", f"an answer above {_ANSWER_BYTES_MAX} bytes")
            else:
                judgement, self._facts = judge_whole(body, self._kind, planned)
        else:
            judgement = judge_status(self._status or 0, body, planned)
        self._end(*judgement)

    def cut(self) -> None:
        """Reading the answer failed."""
        self._end("malformed", "the answer could not be read")

    def answer_broken(self, kind: BreakKind, message: str) -> None:
        """No answer, or the rest of one, will come."""
        stream = self._stream
        if stream is not None and stream.done and kind == "broken":
            self._end(*judge_stream(stream, self.planned))  # whole but for HTTP's own end
        elif kind != "broken":
            self._end(_BROKEN[kind], message)
        elif message.startswith(MALFORMED):
            self._end("malformed", message)
        else:
            carrier = self.upstream
            came = isinstance(carrier, LoadConnection) and carrier.answered
            self._end("cut" if came else "broken", message)

    # --- told by the run ----------------------------------------------------------------------

    def give_up(self, outcome: CallOutcome, error: str | None) -> None:
        """Leave without the answer, or its rest: the closed connection tells the server so."""
        if self.outcome is not None:
            return
        if self.upstream is not None:
            self.upstream.abort()
        self._end(outcome, error)

    def record(self) -> CallRecord:
        """What became of it."""
        assert self.outcome is not None
        planned, stream, facts = self.planned, self._stream, self._facts
        return CallRecord(
            index=planned.index,
            phase=self.phase,
            outcome=self.outcome,
            scheduled_s=self.scheduled_s,
            target=(planned.target or 0) if self.target is None else self.target,
            arm=planned.arm,
            block=planned.block,
            taken_s=self.taken_s,
            connected_s=self._connected_s,
            sent_s=self.sent_s,
            answered_s=self._answered_s(),
            ended_s=self.ended_s,
            token_times_s=_NO_TIMES if stream is None else stream.token_times_s,
            token_events=_NO_EVENTS if stream is None else stream.token_events,
            endpoint=planned.endpoint,
            stream=planned.stream,
            tenant=planned.tenant,
            model=planned.model,
            adapter=planned.adapter,
            status=self._status,
            error=self.error,
            attempts=max(1, self.attempts),
            planned_prompt_tokens=planned.prompt_tokens,
            planned_output_tokens=planned.output_tokens,
            prompt_tokens=None if facts is None else facts.prompt_tokens,
            cached_tokens=None if facts is None else facts.cached_tokens,
            output_tokens=None if facts is None else facts.output_tokens,
            request_id=self._request_id,
        )

    def _answered_s(self) -> float | None:
        """No later than what came with the same read: that is timed as the read begins."""
        if self.answered_s is None or self.ended_s is None:
            return self.answered_s
        times_s = self._stream.token_times_s if self._stream is not None else None
        return min(self.answered_s, times_s[0] if times_s else self.ended_s)

    def _end(self, outcome: CallOutcome, error: str | None) -> None:
        if self.outcome is not None:
            return
        self.outcome, self.error = outcome, error
        if self.ended_s is None:
            self.ended_s = time.monotonic() - self._zero_s
        if self._cancelling is not None:
            self._cancelling.cancel()
            self._cancelling = None
        self.upstream = None
        self._kept = []
        self._over(self)
