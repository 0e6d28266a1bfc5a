"""server_message(): what a server said went wrong, short, and without the prompt it may quote."""

from __future__ import annotations

import msgspec

__all__ = ["server_message"]

_CHARS_MAX = 300
_READ_CHARS_MAX = 4_000
_QUOTE_CHARS = 16
"""Text of at least this length that is in the request, too, is a quotation of it."""


def server_message(answer: bytes, *, request: bytes = b"", model: str | None = None) -> str | None:
    """The message of an error answer in any of the usual shapes; None where there is none.

    Validation errors quote the request: what stands in its body, too, is cut out, but for the
    model's name.
    """
    try:
        found = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # a page of a proxy, or text of whatever kind
    text = _text_of(found)
    if text is None:
        return None
    text = " ".join(text[:_READ_CHARS_MAX].replace("\\n", " ").split())
    if request:
        text = _without_quotes(text, request, model)
    return text if len(text) <= _CHARS_MAX else text[: _CHARS_MAX - 3] + "..."


def _text_of(found: object) -> str | None:
    """OpenAI's error.message; message; FastAPI's detail, as text or as a list with `msg`s."""
    if isinstance(found, str):
        return found
    if isinstance(found, list):
        parts = [text for item in found if (text := _text_of(item))]
        return "; ".join(parts) or None
    if not isinstance(found, dict):
        return None
    for key in ("error", "message", "msg", "detail"):
        if text := _text_of(found.get(key)):
            return text
    return None


def _without_quotes(text: str, request: bytes, model: str | None) -> str:
    body = _words(request, model)
    kept: list[str] = []
    at = 0
    while at < len(text):
        end = at + _QUOTE_CHARS
        if end > len(text) or text[at:end] not in body:
            kept.append(text[at])
            at += 1
            continue
        while end < len(text) and text[at : end + 1] in body:
            end += 1
        kept.append("[...]")
        at = end
    return "".join(kept)


def _words(request: bytes, model: str | None) -> str:
    """All text in a request's JSON, but its keys and the model, which a message may well name."""
    try:
        found = msgspec.json.decode(request)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return " ".join(request.decode("utf-8", "replace").split())
    texts: list[str] = []
    left = [found]
    while left:
        value = left.pop()
        if isinstance(value, str) and value != model:
            texts.append(" ".join(value.split()))
        elif isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
    return "\0".join(texts)
