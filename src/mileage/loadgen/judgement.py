"""What an answer is worth: the outcome of a call by what its server sent."""

from __future__ import annotations

from typing import NamedTuple

from mileage.loadgen.answer_json import Facts, NotJsonError, read_facts
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.server_message import server_message
from mileage.loadgen.token_stream import TokenStream
from mileage.measure.call_record import CallOutcome

__all__ = ["Judgement", "judge_status", "judge_stream", "judge_whole"]

_KIND_CHARS_MAX = 60


class Judgement(NamedTuple):
    """An outcome, and in words why it is not `ok`."""

    outcome: CallOutcome
    error: str | None = None


def judge_status(status: int, body: bytes, call: PlannedCall) -> Judgement:
    """Of an answer that is not 200."""
    message = server_message(body, request=call.body, model=call.model)
    error = f"status {status}: {message}" if message else f"status {status}"
    if status in (429, 503):
        return Judgement("rejected", error)
    if 400 <= status < 500:
        return Judgement("client_error", error)
    return Judgement("server_error" if status >= 500 else "malformed", error)


def judge_stream(stream: TokenStream, call: PlannedCall) -> Judgement:
    """Of an event stream that is over, as far as it came."""
    if stream.failure is not None:
        message = server_message(stream.failure, request=call.body, model=call.model)
        return Judgement("server_error", f"an error event: {message or 'without a message'}")
    if stream.complaint is not None:
        return Judgement("malformed", stream.complaint)
    if not (stream.done or stream.finished):
        return Judgement("cut", "the stream ended without its end")
    if not stream.token_times_s and not stream.output_tokens:
        return Judgement("malformed", "the stream had no token")
    return Judgement("ok")


def judge_whole(body: bytes, kind: bytes, call: PlannedCall) -> tuple[Judgement, Facts | None]:
    """Of an answer of status 200 that is no event stream; `kind` is its content type."""
    try:
        facts = read_facts(body)
    except NotJsonError as error:
        facts = None
        wrong = f"no JSON: {error}"
    if facts is not None and facts.failed:
        message = server_message(body, request=call.body, model=call.model)
        return Judgement("server_error", f"status 200 with an error: {message}"), facts
    if call.stream:
        name = kind[:_KIND_CHARS_MAX].decode("latin-1") or "none"
        return Judgement("malformed", f"no event stream: its content type is {name}"), facts
    if facts is None:
        return Judgement("malformed", wrong), None
    if not facts.items:
        what = "embedding" if call.endpoint == "embeddings" else "choice"
        return Judgement("malformed", f"an answer without any {what}"), facts
    return Judgement("ok"), facts
