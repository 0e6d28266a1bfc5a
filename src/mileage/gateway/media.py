"""Media: what images, audio and video in a prompt weigh. They are looked at and never changed."""

from __future__ import annotations

import binascii
from typing import Literal, NamedTuple

import msgspec

from mileage.gateway.audio_header import audio_duration_s
from mileage.gateway.image_header import image_size
from mileage.policy.modality import VIDEO_PATCHES, audio_frames, image_patches

__all__ = ["NO_MEDIA", "Media", "find_media", "may_have_media"]

IMAGE_PATCHES_TOTAL_MAX = 40_000_000
AUDIO_FRAMES_TOTAL_MAX = 40_000_000
"""Ten million tokens each: more than any context; nothing that is sent gives a larger load."""
UNKNOWN_IMAGE_PX = (1024, 768)
"""Assumed of an image behind a URL, or of a format or size that cannot be read: 999 tokens."""
UNKNOWN_AUDIO_S = 30.0
"""Assumed of audio behind a URL: Whisper's window."""

_SMALL_BYTES = 300_000
_OBJECTS_MAX = 100_000
_ITEMS_MAX = 1_000_000
_MEDIA_MAX = 1000
"""As many are looked at in one prompt; those beyond weigh what is assumed of unknown ones."""
_HEAD_CHARS = (64, 4096, 131_072)
"""Base64 is decoded in steps, until the header is whole: the last is for JPEGs with a preview."""
_AUDIO_HEAD_CHARS = 4096
_GLANCES = 16
_LIST_OF_PARTS = b'{" \t\r\n'
"""What the first byte of a list of parts may be; in a text, `[` is mostly followed by others."""
_Kind = Literal["image", "video", "audio", "audio_url"]
_KINDS: dict[str, _Kind] = {
    "image_url": "image",
    "input_image": "image",
    "image": "image",
    "computer_screenshot": "image",
    "video_url": "video",
    "input_audio": "audio",
    "audio_url": "audio_url",
}
_URL_SAFE = bytes.maketrans(b"-_", b"+/")


class Media(NamedTuple):
    """`payload_bytes` are those of the prompt's JSON that hold media: base64, or the URL of one."""

    image_patches: int
    audio_frames: int
    payload_bytes: int


NO_MEDIA = Media(0, 0, 0)


class _Link(msgspec.Struct, gc=False):
    """`image_url` of the chat API and its like; of `input_audio` and `source` the data."""

    url: str | None = None
    data: str | None = None
    detail: str | None = None


class _Part(msgspec.Struct, gc=False):
    """A message, a part of its content, or an item of the responses API: what they nest is alike.

    Fields that hold no media are skipped unread.
    """

    type: str | None = None
    content: str | list[_Part | str] | _Part | None = None
    output: str | list[_Part | str] | _Part | None = None
    image_url: _Link | str | None = None
    audio_url: _Link | str | None = None
    video_url: _Link | str | None = None
    input_audio: _Link | str | None = None
    source: _Link | str | None = None
    detail: str | None = None


_decode = msgspec.json.Decoder(list[_Part | str]).decode


def may_have_media(raw: bytes) -> bool:
    """False for most bodies without media, in the time of one glance.

    Media are parts in a message's list, in the list of messages: a second list, of objects. Bodies
    that have one for another reason (tools, parts of text) are told apart by `find_media`.
    """
    at = raw.find(b"[")
    for _ in range(_GLANCES):
        at = raw.find(b"[", at + 1)
        if at < 0:
            return False
        if raw[at + 1] in _LIST_OF_PARTS:
            return True
    return True


def find_media(prompt: memoryview, raw: bytes) -> Media:
    """What the media in a prompt add; `prompt` is valid JSON and a part of the body, `raw`.

    Never raises: a prompt of another shape than the APIs', or with more than 100,000 objects, has
    no media here, and its payloads count as text. A medium that cannot be read weighs what is
    assumed of an unknown one.
    """
    if prompt[0] != 0x5B:
        return NO_MEDIA
    if len(raw) > _SMALL_BYTES and (raw.count(b"{") > _OBJECTS_MAX or raw.count(b",") > _ITEMS_MAX):
        return NO_MEDIA  # what is made of them must not take many times the body's memory
    try:
        waiting: list[_Part | str] = _decode(prompt)
    except (msgspec.MsgspecError, RecursionError):
        return NO_MEDIA
    media: list[tuple[_Kind, _Part]] = []
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            continue
        for nested in (part.content, part.output):
            if isinstance(nested, list):
                waiting += nested
            elif isinstance(nested, _Part):
                waiting.append(nested)
        kind = _kind_of(part)
        if kind is not None:
            media.append((kind, part))
    return _weigh(media, prompt, raw) if media else NO_MEDIA


def _kind_of(part: _Part) -> _Kind | None:
    """By its type; vLLM goes by the fields where there is none."""
    if part.type is not None:
        return _KINDS.get(part.type)
    if part.image_url is not None:
        return "image"
    if part.video_url is not None:
        return "video"
    if part.input_audio is not None:
        return "audio"
    return "audio_url" if part.audio_url is not None else None


def _weigh(media: list[tuple[_Kind, _Part]], prompt: memoryview, raw: bytes) -> Media:
    patches = frames = 0
    payloads: list[str] = []
    for index, (kind, part) in enumerate(media):
        known = index < _MEDIA_MAX
        if kind == "image":
            payload = _payload(part.source if part.image_url is None else part.image_url)
            patches += _image(payload if known else "", low_detail=_detail(part) == "low")
        elif kind == "video":
            payload = _payload(part.video_url)
            patches += VIDEO_PATCHES
        else:
            inline = kind == "audio"
            payload = _payload(part.input_audio if inline else part.audio_url)
            frames += _audio(payload if known else "", bare=inline)
        payloads.append(payload)
    return Media(
        min(patches, IMAGE_PATCHES_TOTAL_MAX),
        min(frames, AUDIO_FRAMES_TOTAL_MAX),
        min(_json_bytes(payloads, raw), len(prompt)),
    )


def _payload(link: _Link | str | None) -> str:
    """The base64 or the URL; "" where there is none (a file's id, say)."""
    if isinstance(link, _Link):
        return link.data or link.url or ""
    return link or ""


def _detail(part: _Part) -> str | None:
    link = part.image_url
    return (link.detail if isinstance(link, _Link) else None) or part.detail


def _image(payload: str, *, low_detail: bool) -> int:
    size = None
    data_at = _data_at(payload, bare=True)
    if data_at is not None:
        for chars in _HEAD_CHARS:
            size = image_size(_decoded(payload[data_at : data_at + chars]))
            if size is not None or len(payload) <= data_at + chars:
                break
    width, height = UNKNOWN_IMAGE_PX if size is None else size
    return image_patches(width, height, low_detail=low_detail)


def _audio(payload: str, *, bare: bool) -> int:
    data_at = _data_at(payload, bare=bare)
    if data_at is None:
        return audio_frames(UNKNOWN_AUDIO_S)
    head = _decoded(payload[data_at : data_at + _AUDIO_HEAD_CHARS])
    return audio_frames(audio_duration_s(head, (len(payload) - data_at) * 3 // 4))


def _data_at(payload: str, *, bare: bool) -> int | None:
    """Where the base64 begins: after the head of a data URL (RFC 2397), or at once.

    None for any other URL, for nothing at all, and where base64 alone is not expected.
    """
    if payload[:5].lower() == "data:":
        comma = payload.find(",", 5, 1024)
        return comma + 1 if comma > 0 and payload[5:comma].lower().endswith(";base64") else None
    return 0 if bare and payload and ":" not in payload[:64] else None


def _decoded(text: str) -> bytes:
    """Bytes of the beginning of base64, also URL-safe, also in lines; b"" where it is none."""
    data = text.encode("ascii", "replace").translate(_URL_SAFE, b"\r\n")
    try:
        return binascii.a2b_base64(data[: len(data) // 4 * 4])
    except ValueError:
        return b""


def _json_bytes(payloads: list[str], raw: bytes) -> int:
    """Bytes that payloads take in the body, where / and + may be escaped, as PHP and .NET do.

    Whether they are is told from a piece of the longest one: what wrote it wrote the others too.
    """
    total = sum(map(len, payloads))
    if b"\\" not in raw or not total:
        return total
    longest = max(payloads, key=len)
    for char, more in (("/", 1), ("+", 5)):
        at = longest.find(char, 8)
        piece = longest[at - 8 : at + 9]
        if at > 0 and piece.isascii() and piece.isprintable() and piece.encode() not in raw:
            total += more * sum(payload.count(char) for payload in payloads)
    return total + sum(payload.count("\n") + payload.count("\r") for payload in payloads)
