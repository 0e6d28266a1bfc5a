"""PromptPieces: everything of a request's body that an engine may put before its model as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mileage.core.request import Endpoint
from mileage.gateway.media import media_field
from mileage.gateway.prompt_text import BESIDE_FIELDS, PROMPT_FIELDS

__all__ = ["PromptPieces", "embeds_weight"]

_DEPTH_MAX: Final = 12
_NESTED: Final = frozenset(
    ("cache_control", "content", "file", "function", "output", "source", "summary", "tool_calls")
)
"""Fields whose objects are the API's own; those of any other are JSON that the model is shown."""
_LABELS: Final = frozenset(
    (
        "call_id",
        "detail",
        "filename",
        "format",
        "id",
        "media_type",
        "role",
        "status",
        "tool_call_id",
        "tool_use_id",
        "ttl",
        "type",
    )
)
_LABEL_CHARS_MAX: Final = 64
"""Longer ones are no labels: some templates print them, and they may not be free."""
_OPAQUE: Final = frozenset(("encrypted_content", "file_data", "signature"))
_OPAQUE_DATA: Final = ("base64", "redacted_thinking")
_EMBEDS_RATIO: Final = 512
"""Of base64: 2 KiB of it, half a thousand numbers, are taken to be one token's."""
_encode = msgspec.json.Encoder().encode


class PromptPieces:
    """`texts`: messages, parts of them, what tools were called with, and fields that a template may
    write out, each by itself.

    Nothing is left out but images, audio and video, which weigh by their size, and labels: what is
    left out is free until the engine has read it. Of `opaque_bytes` (files, signatures) nobody can
    tell how a model reads them.
    """

    __slots__ = ("opaque_bytes", "texts")

    def __init__(self, endpoint: Endpoint, fields: Mapping[str, Any]) -> None:
        self.texts: list[str] = []
        self.opaque_bytes = 0
        for name in PROMPT_FIELDS.get(endpoint, ("input",)):  # of embeddings
            self._walk(fields.get(name), _DEPTH_MAX)
        for name in BESIDE_FIELDS.get(endpoint, ()):
            value = fields.get(name)
            if isinstance(value, str):
                self.texts.append(value)
            elif value:
                self._whole(value)
        self.opaque_bytes += embeds_weight(fields.get("prompt_embeds"))

    def _walk(self, value: object, depth: int) -> None:
        if isinstance(value, str):
            self.texts.append(value)
        elif isinstance(value, list):
            if depth and all(isinstance(item, (str, list, dict)) for item in value):
                for item in value:
                    self._walk(item, depth - 1)
            else:
                self._whole(value)
        elif isinstance(value, dict):
            if depth:
                self._part(value, depth)
            else:
                self._whole(value)

    def _part(self, part: dict[str, Any], depth: int) -> None:
        """A message, a part of one, or an item: what they nest is alike."""
        medium = media_field(part)
        for name, value in part.items():
            if name == medium:
                continue
            if isinstance(value, (list, dict)):
                if name in _NESTED:
                    self._walk(value, depth - 1)
                elif value:
                    self._whole(value)
            elif not isinstance(value, str):
                continue  # a flag, a number of the API's
            elif name in _OPAQUE or (name == "data" and part.get("type") in _OPAQUE_DATA):
                self.opaque_bytes += len(value)
            elif name not in _LABELS or len(value) > _LABEL_CHARS_MAX:
                self.texts.append(value)

    def _whole(self, value: object) -> None:
        self.texts.append(_encode(value).decode())


def embeds_weight(embeds: object) -> int:
    """Bytes of text that `prompt_embeds`, base64 or a list of such, weigh like."""
    if isinstance(embeds, list):
        return sum(len(each) for each in embeds if isinstance(each, str)) // _EMBEDS_RATIO
    return len(embeds) // _EMBEDS_RATIO if isinstance(embeds, (str, msgspec.Raw)) else 0
