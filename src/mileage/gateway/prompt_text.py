"""The text of a prompt, out of a request's body, for what looks at a sample of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mileage.core.request import Endpoint

__all__ = ["BESIDE_FIELDS", "PROMPT_FIELDS", "prompt_text"]

BODY_BYTES_MAX: Final = 256 * 1024
PROMPT_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "chat": ("messages",),
    "completions": ("prompt",),
    "responses": ("instructions", "input"),
    "messages": ("system", "messages"),
}
"""Fields of each endpoint that hold the prompt, in the order in which the model reads them."""
BESIDE_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "chat": (
        "chat_template",
        "chat_template_kwargs",
        "documents",
        "functions",
        "response_format",
        "tools",
    ),
    "completions": ("suffix",),
    "embeddings": ("chat_template", "chat_template_kwargs", "messages"),
    "responses": ("chat_template_kwargs", "previous_input_messages", "prompt", "text", "tools"),
    "messages": ("chat_template_kwargs", "documents", "output_config", "tools"),
}
"""Fields that a chat template may write into the prompt. Of those that an engine ignores the count
is too high; where one was left out, a prompt could be sent in it for nothing."""
_DEPTH_MAX: Final = 6
_TEXTS: Final = ("content", "text", "input_text")
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def prompt_text(endpoint: Endpoint, body: bytes) -> str | None:
    """All text of the prompt; None for endpoints without one, and bodies too large to look at."""
    names = PROMPT_FIELDS.get(endpoint)
    if names is None or len(body) > BODY_BYTES_MAX:
        return None
    try:
        fields = _decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return "\n".join(text for name in names for text in _texts(fields.get(name), _DEPTH_MAX))


def _texts(value: object, depth: int) -> Iterator[str]:
    if depth == 0:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, depth - 1)
    elif isinstance(value, dict):
        for name in _TEXTS:
            yield from _texts(value.get(name), depth - 1)
