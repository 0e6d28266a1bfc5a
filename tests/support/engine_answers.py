"""What a scripted engine says: whole answers and streams of each API, of numbered tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

import msgspec

__all__ = [
    "PROMPT_TOKENS",
    "Asked",
    "asked_of",
    "embedding_of",
    "error_answer",
    "stream_events",
    "text_of",
    "whole_answer",
    "words_of",
]

PROMPT_TOKENS = 11
CACHED_TOKENS = 3
_encode = msgspec.json.Encoder().encode


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What of a request's body decides the answer."""

    model: str = ""
    stream: bool = False
    usage: bool = False
    tokens_max: int | None = None
    prompt: str = ""
    inputs: tuple[Any, ...] = ()
    """What is to be embedded."""


def asked_of(body: bytes) -> Asked:
    """What a body asks for; raises msgspec.DecodeError."""
    fields: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
    options = fields.get("stream_options") or {}
    bound = next(
        (
            fields[name]
            for name in ("max_completion_tokens", "max_tokens", "max_output_tokens")
            if fields.get(name) is not None
        ),
        None,
    )
    return Asked(
        model=str(fields.get("model")),
        stream=bool(fields.get("stream")),
        usage=bool(options.get("include_usage")),
        tokens_max=bound,
        prompt=_prompt(fields),
        inputs=tuple(_inputs(fields.get("input"))),
    )


def _inputs(value: Any) -> list[Any]:
    """The items of an input: a text, tokens, or a list of either."""
    if not isinstance(value, list):
        return [] if value is None else [value]
    return [value] if value and isinstance(value[0], int) else value


def embedding_of(item: Any) -> list[float]:
    """The embedding of one item, which tells it from others."""
    return [crc32(_encode(item)) / 2**32, -0.5, 1.0]


def _prompt(fields: dict[str, Any]) -> str:
    """The last message's text."""
    messages = fields.get("messages")
    content = messages[-1].get("content") if messages and isinstance(messages[-1], dict) else None
    return content if isinstance(content, str) else ""


def words_of(tokens: int, token_bytes: int = 0, mark: str = "") -> list[str]:
    """The tokens of an answer: "0 ", "1 ", each marked, and filled up to `token_bytes`."""
    return [f"{number}{mark} ".ljust(token_bytes, "x") for number in range(tokens)]


def text_of(tokens: int, mark: str = "") -> str:
    """The text of an answer of so many tokens."""
    return "".join(words_of(tokens, mark=mark))


def error_answer(status: int, message: str) -> bytes:
    """An error's body in OpenAI's form."""
    return _encode({"error": {"message": message, "type": "scripted", "code": f"said_{status}"}})


def whole_answer(
    path: str, model: str, words: Sequence[str], inputs: Sequence[Any] = ("",)
) -> bytes:
    """The body of an answer that is not streamed; embeddings have an item for each input."""
    if path == "/v1/embeddings":
        return _encode(_embeddings(model, inputs))
    return _encode(_whole(path, model, words))


def _embeddings(model: str, inputs: Sequence[Any]) -> dict[str, Any]:
    tokens = PROMPT_TOKENS * len(inputs)
    data = [
        {"object": "embedding", "index": index, "embedding": embedding_of(item)}
        for index, item in enumerate(inputs)
    ]
    # Not in order: the index is what counts.
    return {
        "object": "list",
        "model": model,
        "data": data[::-1],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def stream_events(
    path: str, model: str, words: Sequence[str], *, usage: bool
) -> Iterator[tuple[bytes, bool]]:
    """The events of a streamed answer, and of each whether it carries a token."""
    if path == "/v1/messages":
        yield from _messages_stream(model, words)
    elif path == "/v1/responses":
        yield from _responses_stream(model, words)
    else:
        yield from _chunks(path, model, words, usage=usage)


def _whole(path: str, model: str, words: Sequence[str]) -> dict[str, Any]:
    text, tokens = "".join(words), len(words)
    if path == "/v1/messages":
        content = [{"type": "text", "text": text}]
        return {**_message(model, tokens), "content": content, "stop_reason": "end_turn"}
    if path == "/v1/responses":
        return {**_response(model, tokens), "status": "completed"}
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
    if path == "/v1/completions":
        choice["text"] = text
    else:
        choice["message"] = {"role": "assistant", "content": text}
    return {**_head(path, model), "choices": [choice], "usage": _usage(tokens)}


def _head(path: str, model: str, suffix: str = "") -> dict[str, Any]:
    kind = "text_completion" if path == "/v1/completions" else f"chat.completion{suffix}"
    return {"id": "scripted-1", "object": kind, "created": 1, "model": model}


def _usage(tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": tokens,
        "total_tokens": PROMPT_TOKENS + tokens,
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS},
    }


def _chunks(
    path: str, model: str, words: Sequence[str], *, usage: bool
) -> Iterator[tuple[bytes, bool]]:
    head = _head(path, model, ".chunk")
    chat = path == "/v1/chat/completions"

    def chunk(content: str | None, finish: str | None = None) -> bytes:
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        if chat:
            choice["delta"] = {} if content is None else {"content": content}
        else:
            choice["text"] = content or ""
        return b"data: %b\n\n" % _encode({**head, "choices": [choice]})

    if chat:
        role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        yield b"data: %b\n\n" % _encode({**head, "choices": [role]}), False
    for word in words:
        yield chunk(word), True
    yield chunk(None, "stop"), False
    if usage:
        yield b"data: %b\n\n" % _encode({**head, "choices": [], "usage": _usage(len(words))}), False
    yield b"data: [DONE]\n\n", False


def _typed(event: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), _encode(event))


def _message(model: str, tokens: int) -> dict[str, Any]:
    usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": tokens}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "usage": usage,
    }


def _messages_stream(model: str, words: Sequence[str]) -> Iterator[tuple[bytes, bool]]:
    yield _typed({"type": "message_start", "message": _message(model, 0)}), False
    block = {"type": "text", "text": ""}
    yield _typed({"type": "content_block_start", "index": 0, "content_block": block}), False
    for word in words:
        delta = {"type": "text_delta", "text": word}
        yield _typed({"type": "content_block_delta", "index": 0, "delta": delta}), True
    yield _typed({"type": "content_block_stop", "index": 0}), False
    usage = {"output_tokens": len(words)}
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    yield _typed({"type": "message_delta", "delta": stop, "usage": usage}), False
    yield _typed({"type": "message_stop"}), False


def _response(model: str, tokens: int) -> dict[str, Any]:
    usage = {
        "input_tokens": PROMPT_TOKENS,
        "output_tokens": tokens,
        "total_tokens": PROMPT_TOKENS + tokens,
        "input_tokens_details": {"cached_tokens": CACHED_TOKENS},
    }
    return {"id": "resp_1", "object": "response", "model": model, "output": [], "usage": usage}


def _responses_stream(model: str, words: Sequence[str]) -> Iterator[tuple[bytes, bool]]:
    yield _typed({"type": "response.created", "response": {"id": "resp_1", "usage": None}}), False
    for word in words:
        yield _typed({"type": "response.output_text.delta", "delta": word}), True
    yield _typed({"type": "response.completed", "response": _response(model, len(words))}), False
