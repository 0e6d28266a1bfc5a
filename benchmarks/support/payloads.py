"""OpenAI-shaped request bodies and the canned answers that the upstreams give."""

from __future__ import annotations

import json

__all__ = [
    "CHAT_MODEL",
    "DONE_EVENT",
    "STREAM_MODEL",
    "TICKET",
    "Events",
    "NumberedRequest",
    "chat_answer",
    "chat_events",
    "chat_request",
    "http_request",
    "models_answer",
    "stamped_event",
    "stamped_fields",
    "usage_event",
]

CHAT_MODEL = "bench"
"""Served by the upstream that answers at once."""
STREAM_MODEL = "bench-stream"
"""Served by the upstream that answers with events."""

TICKET = "00000000"
"""Stands for the number that makes every conversation another one, as in real traffic: equal
prompts would flatter any cache of prompts."""

DONE_EVENT = b"data: [DONE]\n\n"

PROMPT_TOKENS = 143
ANSWER_TOKENS = 64
_CREATED = 1_790_000_000
_ID = "chatcmpl-4f1c0e5d9a7b4c2e8f60a1b2c3d4e5f6"
_SYSTEM = (
    "You answer questions of a support desk. Be brief and exact, quote the manual's section where "
    "there is one, and say so when you do not know."
)
_TURNS = (
    (
        "user",
        f"Ticket {TICKET}: the pump stops ten minutes after the start, the red lamp blinks twice.",
    ),
    ("assistant", "Two blinks mean over-temperature (section 4.2). Is the intake filter clean?"),
    ("user", "I cleaned it yesterday, and it still stops. What should I look at next?"),
)
_ANSWER = (
    "Then look at the outlet valve: a valve that opens less than half lets the motor run hot with "
    "a clean filter too (section 4.3). Open it fully, let the pump cool for fifteen minutes, and "
    "start it again. If it still stops, measure the winding: below 11 ohms it needs service."
)


class Events(tuple[bytes, ...]):
    """The `data:` events of one streamed answer, each with its blank line."""

    __slots__ = ()

    @property
    def body(self) -> bytes:
        """All of them as they stand in the response body."""
        return b"".join(self)


class NumberedRequest:
    """One HTTP request again and again, each time with another ticket number."""

    __slots__ = ("_before", "_behind", "_count")

    def __init__(self, request: bytes) -> None:
        self._before, _, self._behind = request.partition(TICKET.encode())
        self._count = 0

    def next(self) -> bytes:
        """The next request."""
        self._count += 1
        return b"%b%08d%b" % (self._before, self._count, self._behind)


def chat_request(
    model: str, *, stream: bool = False, usage: bool = False, user: str | None = None
) -> bytes:
    """A chat completion request of about 700 bytes.

    `usage` asks for the usage chunk of a stream. `user` goes into the field of that name, where
    the local engine reads its orders (see benchmarks.support.engine).
    """
    body: dict[str, object] = {
        "model": model,
        "messages": [
            {"role": "system", "content": _SYSTEM},
            *({"role": role, "content": text} for role, text in _TURNS),
        ],
        "max_tokens": 256,
        "temperature": 0.7,
        "top_p": 0.95,
    }
    if stream:
        body["stream"] = True
    if usage:
        body["stream_options"] = {"include_usage": True}
    if user is not None:
        body["user"] = user
    return _encode(body)


def chat_answer(model: str = CHAT_MODEL) -> bytes:
    """A whole chat completion of about 700 bytes, with its usage."""
    return _encode(
        {
            "id": _ID,
            "object": "chat.completion",
            "created": _CREATED,
            "model": model,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": _ANSWER, "tool_calls": []},
                    "logprobs": None,
                    "finish_reason": "stop",
                    "stop_reason": None,
                }
            ],
            "usage": _usage(ANSWER_TOKENS),
            "prompt_logprobs": None,
        }
    )


def chat_events(count: int, *, usage: bool, model: str = STREAM_MODEL) -> Events:
    """A streamed answer: `count` choice events, then the usage chunk if wanted, then [DONE].

    The first event carries the role and the last one the finish reason, as engines do it.
    """
    if count < 2:
        raise ValueError("a streamed answer has at least two events")
    chunks = [_chunk(model, {"role": "assistant", "content": ""})]
    chunks += [_chunk(model, {"content": f" word{n:04d}"}) for n in range(1, count - 1)]
    chunks.append(_chunk(model, {"content": ""}, finish="stop"))
    events = [_event(chunk) for chunk in chunks]
    if usage:
        events.append(usage_event(count - 1, model=model))
    return Events([*events, DONE_EVENT])


def usage_event(output_tokens: int, *, model: str = STREAM_MODEL) -> bytes:
    """The event that tells the usage of a streamed answer."""
    return _event({**_chunk(model, {}), "choices": [], "usage": _usage(output_tokens)})


def stamped_event(number: int, written_ns: int, *, last: bool = False) -> bytes:
    """A choice event that carries its number and the time it was written, at fixed places."""
    head, tail = _STAMPED_LAST if last else _STAMPED
    return b"%s%06d %019d%s" % (head, number, written_ns, tail)


def stamped_fields(event: bytes) -> tuple[int, int]:
    """Number and time of a stamped event; (-1, 0) where it is none."""
    at = len(_STAMPED[0])
    number, written = event[at : at + 6], event[at + 7 : at + 26]
    if not (number.isdigit() and written.isdigit()):
        return -1, 0
    return int(number), int(written)


def models_answer(*models: str) -> bytes:
    """The answer to GET /v1/models."""
    cards = [
        {"id": m, "object": "model", "created": _CREATED, "owned_by": "vllm", "root": m}
        for m in models
    ]
    return _encode({"object": "list", "data": cards})


def http_request(
    body: bytes, *, key: str | None = None, path: str = "/v1/chat/completions", close: bool = False
) -> bytes:
    """A whole POST as it goes over the wire."""
    head = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "User-Agent: mileage-benchmark",
        "Accept: application/json",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    if key is not None:
        head.append(f"Authorization: Bearer {key}")
    if close:
        head.append("Connection: close")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def _chunk(model: str, delta: dict[str, str], finish: str | None = None) -> dict[str, object]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {
        "id": _ID,
        "object": "chat.completion.chunk",
        "created": _CREATED,
        "model": model,
        "choices": [choice],
    }


def _event(chunk: dict[str, object]) -> bytes:
    return b"data: " + _encode(chunk) + b"\n\n"


def _usage(output_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": output_tokens,
        "total_tokens": PROMPT_TOKENS + output_tokens,
    }


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _stamp_template(finish: str | None) -> tuple[bytes, bytes]:
    head, _, tail = _event(_chunk(STREAM_MODEL, {"content": "@"}, finish)).partition(b"@")
    return head, tail


_STAMPED = _stamp_template(None)
_STAMPED_LAST = _stamp_template("stop")
