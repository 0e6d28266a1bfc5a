"""Bodies: the JSON of a request to each endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from mileage.core.request import Endpoint
from mileage.loadgen.plan_options import PlanOptions
from mileage.loadgen.server_kind import FULL_LENGTH_FIELDS

__all__ = ["PATHS", "Bodies"]

PATHS: Final[Mapping[Endpoint, bytes]] = {
    "chat": b"/v1/chat/completions",
    "completions": b"/v1/completions",
    "embeddings": b"/v1/embeddings",
    "responses": b"/v1/responses",
    "messages": b"/v1/messages",
}
_LIMITS: Final[Mapping[Endpoint, str]] = {
    "chat": "max_tokens",
    "completions": "max_tokens",
    "responses": "max_output_tokens",
    "messages": "max_tokens",
}
_encode: Final = msgspec.json.Encoder().encode


class Bodies:
    """Makes bodies. Texts are words in ASCII and go in as they are: nothing in them is escaped."""

    def __init__(self, options: PlanOptions) -> None:
        self._temperature = options.temperature
        self._fields = options.fields
        known = FULL_LENGTH_FIELDS[options.server]
        if options.ignore_eos is None:
            self._full_length: Mapping[str, Any] = known
        elif options.ignore_eos:
            self._full_length = known or {"ignore_eos": True}
        else:
            self._full_length = {}

    def body(
        self,
        endpoint: Endpoint,
        texts: Sequence[bytes],
        *,
        model: str,
        output_tokens: int,
        stream: bool,
        user: str | None = None,
        image: bytes | None = None,
        audio: bytes | None = None,
    ) -> bytes:
        """One request. `texts` has several only for embeddings; `image` (PNG) and `audio` (WAV) are
        base64, for chat only."""
        fields = self._rest(endpoint, model, output_tokens, stream, user)
        rest = _encode(fields)[1:]
        text = texts[0]
        if endpoint == "chat":
            if image is not None or audio is not None:
                return _parts(text, image, audio, rest)
            return b'{"messages":[{"role":"user","content":"%b"}],%b' % (text, rest)
        if endpoint == "completions":
            return b'{"prompt":"%b",%b' % (text, rest)
        if endpoint == "messages":
            return b'{"messages":[{"role":"user","content":"%b"}],%b' % (text, rest)
        if len(texts) > 1:
            return b'{"input":["%b"],%b' % (b'","'.join(texts), rest)
        return b'{"input":"%b",%b' % (text, rest)

    def _rest(
        self, endpoint: Endpoint, model: str, output_tokens: int, stream: bool, user: str | None
    ) -> dict[str, Any]:
        """All fields but the prompt."""
        fields: dict[str, Any] = {"model": model}
        if endpoint != "embeddings":
            fields[_LIMITS[endpoint]] = output_tokens
            if self._temperature is not None:
                fields["temperature"] = self._temperature
            fields["stream"] = stream
        if endpoint in ("chat", "completions"):
            fields.update(self._full_length)
            if stream:
                fields["stream_options"] = {"include_usage": True}
        if user is not None:
            if endpoint == "messages":
                fields["metadata"] = {"user_id": user}
            else:
                fields["user"] = user
        if self._fields:
            fields.update(self._fields)
        return fields


def _parts(text: bytes, image: bytes | None, audio: bytes | None, rest: bytes) -> bytes:
    """A chat request of text and media; the text comes first, so that its beginning is shared."""
    pieces = [b'{"messages":[{"role":"user","content":[{"type":"text","text":"', text, b'"}']
    if image is not None:
        pieces += (
            b',{"type":"image_url","image_url":{"url":"data:image/png;base64,', image, b'"}}',
        )  # fmt: skip
    if audio is not None:
        pieces += (
            b',{"type":"input_audio","input_audio":{"data":"', audio, b'","format":"wav"}}',
        )  # fmt: skip
    return b"".join((*pieces, b"]}],", rest))
