"""Request bodies: what the gateway checks and needs of them; the rest passes as it came."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta, Raw

from mileage.core.request import Endpoint
from mileage.gateway.media import NO_MEDIA, Media, find_media, may_have_media
from mileage.gateway.prompt_pieces import embeds_weight
from mileage.gateway.prompt_text import BESIDE_FIELDS
from mileage.gateway.refusals import Refusal

__all__ = ["BYTES_PER_TOKEN", "Body", "parse_body", "upstream_body", "with_lora"]

_PREFIX_BYTES = 1024
"""Prompts whose first bytes agree this far are taken to share a prefix."""
BYTES_PER_TOKEN = 4
"""Of English text, in JSON; other languages and code have fewer."""

_INCLUDE_USAGE = b'{"stream_options":{"include_usage":true},'

_Model = Annotated[str, Meta(min_length=1, max_length=512)]
_Tokens = Annotated[int, Meta(ge=1, le=10_000_000)]
_Choices = Annotated[int, Meta(ge=1, le=1024)]
_Probability = Annotated[float, Meta(ge=0, le=1)]
_Temperature = Annotated[float, Meta(ge=0, le=100)]


_ABSENT = Raw()
_NOTHING = memoryview(b"")


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Common(msgspec.Struct, kw_only=True):
    """Fields of every generating endpoint. Absent and null mean the engine's default."""

    model: _Model
    stream: bool | None = None
    temperature: _Temperature | None = None
    top_p: _Probability | None = None


class _Chat(_Common, kw_only=True):
    messages: Raw
    stream_options: _StreamOptions | None = None
    max_tokens: _Tokens | None = None
    max_completion_tokens: _Tokens | None = None
    chat_template: Raw = _ABSENT
    chat_template_kwargs: Raw = _ABSENT
    documents: Raw = _ABSENT
    functions: Raw = _ABSENT
    response_format: Raw = _ABSENT
    tools: Raw = _ABSENT
    n: _Choices | None = None


class _Completions(_Common, kw_only=True):
    prompt: Raw
    stream_options: _StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=0, le=10_000_000)] | None = None
    suffix: Raw = _ABSENT
    prompt_embeds: Raw = _ABSENT
    n: _Choices | None = None


class _Embeddings(msgspec.Struct, kw_only=True):
    model: _Model
    input: Raw
    chat_template: Raw = _ABSENT
    chat_template_kwargs: Raw = _ABSENT
    messages: Raw = _ABSENT


class _Responses(_Common, kw_only=True):
    input: Raw
    instructions: Raw = _ABSENT
    chat_template_kwargs: Raw = _ABSENT
    previous_input_messages: Raw = _ABSENT
    prompt: Raw = _ABSENT
    text: Raw = _ABSENT
    tools: Raw = _ABSENT
    max_output_tokens: _Tokens | None = None


class _Messages(_Common, kw_only=True):
    messages: Raw
    system: Raw = _ABSENT
    chat_template_kwargs: Raw = _ABSENT
    documents: Raw = _ABSENT
    output_config: Raw = _ABSENT
    tools: Raw = _ABSENT
    max_tokens: _Tokens | None = None


_DECODERS: dict[Endpoint, msgspec.json.Decoder[msgspec.Struct]] = {
    "chat": msgspec.json.Decoder(_Chat),
    "completions": msgspec.json.Decoder(_Completions),
    "embeddings": msgspec.json.Decoder(_Embeddings),
    "responses": msgspec.json.Decoder(_Responses),
    "messages": msgspec.json.Decoder(_Messages),
}
_PROMPT_FIELDS: dict[Endpoint, tuple[str, bytes]] = {
    # the field that holds the prompt, and how its JSON may begin
    "chat": ("messages", b"["),
    "completions": ("prompt", b'["'),
    "embeddings": ("input", b'["'),
    "responses": ("input", b'["'),
    "messages": ("messages", b"["),
}
_EXPECTED = {b"[": "a list that is not empty", b'["': "a string or a list that is not empty"}

_fields = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.Encoder().encode
_path = re.compile(r" - at `\$\.?(.*?)`$")
_missing = re.compile(r"missing required field `(.*?)`")


class Body:
    """What the gateway knows of a body. `prompt` is the prompt's JSON, `prefix` its head, and
    `before` the JSON of what comes before it in the model's input: tools and system prompt.

    `text_bytes` is the JSON of all text that may go to the model, tools, system prompt and what its
    template may write out included, media not. `media` is what images and audio add.
    """

    __slots__ = (
        "before",
        "choices",
        "deterministic",
        "media",
        "model",
        "output_tokens_max",
        "prefix",
        "prompt",
        "stream",
        "text_bytes",
        "usage_asked",
    )

    def __init__(self, endpoint: Endpoint, parsed: msgspec.Struct, raw: bytes) -> None:
        self.model: str = parsed.model  # type: ignore[attr-defined]
        self.stream: bool = endpoint != "embeddings" and bool(parsed.stream)  # type: ignore[attr-defined]
        field, starts = _PROMPT_FIELDS[endpoint]
        prompt = memoryview(getattr(parsed, field))
        empty = len(prompt) <= 2 or (len(prompt) < 64 and not bytes(prompt[1:-1]).strip())
        if prompt[0] not in starts or (empty and prompt[0] == 0x5B):
            raise Refusal(400, f"'{field}' must be {_EXPECTED[starts]}", param=field)
        # Of the same request twice the answers are the same.
        self.deterministic: bool = endpoint == "embeddings" or parsed.temperature == 0  # type: ignore[attr-defined]
        self.text_bytes = len(prompt)
        for beside in BESIDE_FIELDS[endpoint]:
            self.text_bytes += len(getattr(parsed, beside))
        self.media: Media = NO_MEDIA
        self.choices = 1
        self.prompt, self.prefix = prompt, prompt[:_PREFIX_BYTES]
        self.before: tuple[Raw, ...] = ()
        self.usage_asked: bool | None = None
        """stream_options.include_usage; None: the body has no stream_options."""
        self.output_tokens_max: int | None = None
        if isinstance(parsed, (_Chat, _Completions)):
            self.choices = parsed.n or 1
            if parsed.stream_options is not None:
                self.usage_asked = bool(parsed.stream_options.include_usage)
        if isinstance(parsed, _Chat):
            self.output_tokens_max = parsed.max_completion_tokens or parsed.max_tokens
            self.before = (parsed.tools,)
            if may_have_media(raw):
                self._weigh(prompt, raw)
        elif isinstance(parsed, _Completions):
            self.output_tokens_max = parsed.max_tokens
            self.text_bytes += embeds_weight(parsed.prompt_embeds)
        elif isinstance(parsed, _Messages):
            self.output_tokens_max = parsed.max_tokens
            self.before = (parsed.tools, parsed.system)
            self.text_bytes += len(parsed.system)
            if may_have_media(raw):
                self._weigh(prompt, raw)
        elif isinstance(parsed, _Responses):
            self.output_tokens_max = parsed.max_output_tokens
            self.before = (parsed.tools, parsed.instructions)
            self.text_bytes += len(parsed.instructions)
            # Here a screenshot is an item of the prompt itself, and in no list of its own.
            self._weigh(prompt, raw)

    def release(self) -> None:
        """Let go of the views of the prompt: each keeps all of the body."""
        self.prompt = self.prefix = _NOTHING
        self.before = ()

    def _weigh(self, prompt: memoryview, raw: bytes) -> None:
        self.media = find_media(prompt, raw)
        self.text_bytes -= self.media.payload_bytes

    @property
    def prompt_tokens_estimate(self) -> int:
        """Tokens of text that the prompt probably has, at least 1."""
        return self.text_bytes // BYTES_PER_TOKEN + 1

    @property
    def prompt_tokens_max(self) -> int:
        """Tokens of the client's text are no more than this: each has at least a byte.

        What the model's chat template adds is not in it.
        """
        return max(1, self.text_bytes)


def parse_body(endpoint: Endpoint, body: bytes) -> Body:
    """Check a body. Raises Refusal (400) that names the field and what was expected."""
    if not body:
        raise Refusal(400, "the request has no body; a JSON object was expected")
    try:
        if not body.isascii():
            body.decode()
        return Body(endpoint, _DECODERS[endpoint].decode(body), body)
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the body is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise Refusal(400, "the body's JSON is nested too deeply") from None
    except msgspec.ValidationError as error:
        message = str(error)
        found = _path.search(message) or _missing.search(message)
        param = found.group(1) or None if found else None
        raise Refusal(400, message.replace("$.", ""), param=param) from None
    except msgspec.DecodeError as error:
        raise Refusal(400, f"the body is not valid JSON: {error}") from None


def upstream_body(raw: bytes, body: Body, *, model: str, ask_usage: bool) -> bytes:
    """The body for the engine: under the engine's model name, and asking for usage where told."""
    if body.usage_asked:
        ask_usage = False
    if model == body.model and not ask_usage:
        return raw
    if model == body.model and body.usage_asked is None and b'"stream_options"' not in raw:
        return _INCLUDE_USAGE + raw[raw.index(b"{") + 1 :]
    fields = _fields.decode(raw)
    fields["model"] = Raw(_encode(model))
    if ask_usage:
        options = fields.get("stream_options")
        merged = _fields.decode(options) if options and bytes(options) != b"null" else {}
        merged["include_usage"] = Raw(b"true")
        fields["stream_options"] = Raw(_encode(merged))
    return _encode(fields)


def with_lora(raw: bytes, field: bytes | None) -> bytes:
    """The body with this field `lora`, whatever the client wrote there; None: without any.

    With it llama.cpp may find the prompt in its cache, where the same adapters have read it; an
    engine that has adapters does so only where it is told. A client may forbid it.
    """
    ours = b"{" if field is None else b'{"lora":%b,"cache_prompt":true,' % field
    if not any(key in raw for key in (b"lora", b"cache_prompt", b"\\u")):
        return ours + raw[raw.index(b"{") + 1 :]
    fields = _fields.decode(raw)
    fields.pop("lora", None)
    if field is None:
        fields.pop("cache_prompt", None)
    else:
        fields.setdefault("cache_prompt", _TRUE)
        fields["lora"] = Raw(field)
    return _encode(fields)


_TRUE = Raw(b"true")
