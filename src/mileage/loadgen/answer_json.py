"""JSON of answers: what a load generator reads of a completion, an embedding or one event."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

__all__ = ["TOKEN", "Facts", "NotJsonError", "read_facts"]

_NOTHING = msgspec.Raw()
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_TOKENS_MAX = 2**31 - 1
"""Nobody counts as many tokens in one request: sums of them would leave the range of integers."""
_Tokens: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_TOKENS_MAX)]


class NotJsonError(Exception):
    """The bytes are no JSON object."""


class _CacheDetails(msgspec.Struct, frozen=True):
    cached_tokens: _Tokens | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: _Tokens | None = None
    completion_tokens: _Tokens | None = None
    prompt_tokens_details: _CacheDetails | None = None


class _Piece(msgspec.Struct, frozen=True, gc=False):
    """A delta, or a whole message."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct, frozen=True, gc=False):
    delta: _Piece | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Object(msgspec.Struct, frozen=True, gc=False):
    choices: list[_Choice] | None = None
    data: list[msgspec.Raw] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = _NOTHING
    object: str | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one JSON object says. None: it says nothing of it."""

    items: int = 0
    """Choices, or embeddings."""
    carries_text: bool = False
    """A delta of it has text, or a part of a tool call."""
    finished: bool = False
    """A choice of it tells why it ended."""
    failed: bool = False
    """It is an error, not an answer."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


TOKEN = Facts(items=1, carries_text=True)
"""Of an event with one piece of text, and nothing else."""
_NO_TOKEN = Facts(items=1)
_NO_USAGE = _Usage()
_strict = msgspec.json.Decoder(_Object)
_loose = msgspec.json.Decoder()


def read_facts(data: bytes) -> Facts:
    """Read an answer or an event. Raises NotJsonError; fields of unknown types are passed over."""
    try:
        found = _strict.decode(data)
    except _UNREADABLE:  # a field is of another type than usual, or it is no JSON at all
        return _read_loosely(data)
    carries_text = finished = False
    items = found.choices or found.data or ()
    for choice in found.choices or ():
        piece = choice.delta
        if piece is None:
            carries_text |= bool(choice.text)
        elif piece.content:
            carries_text = True
        else:
            other = piece.reasoning_content or piece.reasoning or piece.tool_calls or piece.refusal
            carries_text |= bool(other)
        finished |= choice.finish_reason is not None
    usage = found.usage
    if usage is None and found.error is _NOTHING and found.object != "error":
        if len(items) == 1 and not finished:
            return TOKEN if carries_text else _NO_TOKEN  # what nearly all events are
        return Facts(items=len(items), carries_text=carries_text, finished=finished)
    usage = usage or _NO_USAGE
    details = usage.prompt_tokens_details
    return Facts(
        items=len(items),
        carries_text=carries_text,
        finished=finished,
        failed=bytes(found.error) not in (b"", b"null") or found.object == "error",
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=None if details is None else details.cached_tokens,
        output_tokens=usage.completion_tokens,
    )


def _read_loosely(data: bytes) -> Facts:
    try:
        found = _loose.decode(data)
    except _UNREADABLE as error:
        raise NotJsonError(str(error)) from None
    if not isinstance(found, dict):
        raise NotJsonError("not an object")
    choices = found.get("choices")
    items: object = choices
    if not isinstance(choices, list):
        choices, items = [], found.get("data")
    known = [choice for choice in choices if isinstance(choice, dict)]
    usage, details = found.get("usage"), None
    if isinstance(usage, dict):
        details = usage.get("prompt_tokens_details")
    else:
        usage = {}
    return Facts(
        items=len(items) if isinstance(items, list) else 0,
        carries_text=any(map(_carries_text, known)),
        finished=any(choice.get("finish_reason") is not None for choice in known),
        failed=found.get("error") is not None or found.get("object") == "error",
        prompt_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else None,
        output_tokens=_count(usage.get("completion_tokens")),
    )


def _carries_text(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return any(delta.get(name) for name in _Piece.__struct_fields__)
    return bool(choice.get("text"))


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= _TOKENS_MAX else None
