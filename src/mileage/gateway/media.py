"""Media: what images, audio and video in a prompt weigh. They are looked at and never changed."""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec
from msgspec import Raw

from mileage.gateway.audio_header import audio_duration_s
from mileage.gateway.image_header import image_size
from mileage.policy.modality import VIDEO_PATCHES, audio_frames, image_patches

__all__ = ["NO_MEDIA", "Media", "find_media", "may_have_media", "media_field"]

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
_MEDIA_MAX = 256
"""As many are looked at in one prompt; those beyond weigh what is assumed of unknown ones."""
_HEAD_CHARS = (128, 4096, 131_072)
"""Base64 is decoded in steps, until the header is whole: the last is for JPEGs with a preview."""
_AUDIO_HEAD_CHARS = 4096
_ESCAPE_CHARS = 12
"""A character beyond 16 bits is written as two escapes of six."""
_FINDS = 100
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
_FIELDS: dict[_Kind, tuple[str, ...]] = {
    "image": ("image_url", "source"),
    "video": ("video_url",),
    "audio": ("input_audio",),
    "audio_url": ("audio_url",),
}
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_UNKNOWN_PATCHES = image_patches(*UNKNOWN_IMAGE_PX)
_UNKNOWN_FRAMES = audio_frames(UNKNOWN_AUDIO_S)


class Media(NamedTuple):
    """`payload_bytes` are those of the prompt's JSON that hold media: base64, or the URL of one."""

    image_patches: int
    audio_frames: int
    payload_bytes: int


NO_MEDIA = Media(0, 0, 0)
_ABSENT = Raw()
_NOTHING = memoryview(b"")
_QUOTE = ord('"')


class _Link(msgspec.Struct, gc=False):
    """`image_url` of the chat API and its like; of `input_audio` and `source` the data."""

    url: Raw = _ABSENT
    data: Raw = _ABSENT
    detail: Raw = _ABSENT


class _Part(msgspec.Struct, gc=False):
    """A message, a part of its content, or an item of the responses API: what they nest is alike.

    Media stay where they are in the body: they are not copied. Other fields are skipped unread.
    """

    type: str | None = None
    content: str | list[_Part | str] | _Part | None = None
    output: str | list[_Part | str] | _Part | None = None
    image_url: Raw = _ABSENT
    audio_url: Raw = _ABSENT
    video_url: Raw = _ABSENT
    input_audio: Raw = _ABSENT
    source: Raw = _ABSENT
    detail: Raw = _ABSENT


_decode = msgspec.json.Decoder(list[_Part | str]).decode
_decode_link = msgspec.json.Decoder(_Link).decode
_decode_text = msgspec.json.Decoder(str).decode


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
    if len(raw) > _SMALL_BYTES and (
        _has_more(raw, b"{", _OBJECTS_MAX) or _has_more(raw, b",", _ITEMS_MAX)
    ):
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
    return _weigh(media) if media else NO_MEDIA


def _has_more(raw: bytes, char: bytes, most: int) -> bool:
    """Whether a character is there more often; base64, which has none of them, is passed fast."""
    at = -1
    for _ in range(_FINDS):
        at = raw.find(char, at + 1)
        if at < 0:
            return False
    return raw.count(char) > most


def media_field(part: Mapping[str, object]) -> str | None:
    """The field of a part that holds its image, audio or video; None where it is no such part."""
    named = part.get("type")
    if named is None:
        return next((f for of in _FIELDS.values() for f in of[:1] if part.get(f)), None)
    kind = _KINDS.get(named) if isinstance(named, str) else None
    if kind is None:
        return None
    return next((field for field in _FIELDS[kind] if part.get(field)), None)


def _kind_of(part: _Part) -> _Kind | None:
    """By its type; vLLM goes by the fields where there is none."""
    if part.type is not None:
        return _KINDS.get(part.type)
    if part.image_url:
        return "image"
    if part.video_url:
        return "video"
    if part.input_audio:
        return "audio"
    return "audio_url" if part.audio_url else None


def _weigh(media: list[tuple[_Kind, _Part]]) -> Media:
    patches = frames = payload_bytes = 0
    for kind, part in media[:_MEDIA_MAX]:
        payload, detail = _open(_link(kind, part))
        if kind == "image":
            low_detail = b'"low"' in (bytes(detail), bytes(part.detail))
            patches += _image(payload, low_detail=low_detail)
        elif kind == "video":
            patches += VIDEO_PATCHES
        else:
            frames += _audio(payload, bare=kind == "audio")
        payload_bytes += max(0, len(payload) - 2)
    for kind, part in media[_MEDIA_MAX:]:
        if kind in ("image", "video"):
            patches += _UNKNOWN_PATCHES
        else:
            frames += _UNKNOWN_FRAMES
        payload_bytes += len(_link(kind, part))
    return Media(
        min(patches, IMAGE_PATCHES_TOTAL_MAX), min(frames, AUDIO_FRAMES_TOTAL_MAX), payload_bytes
    )


def _link(kind: _Kind, part: _Part) -> Raw:
    if kind == "image":
        return part.image_url or part.source
    if kind == "video":
        return part.video_url
    return part.input_audio if kind == "audio" else part.audio_url


def _open(link: Raw) -> tuple[memoryview, Raw]:
    """The JSON text that is base64 or a URL (empty: none, or a file's id, say), and the detail."""
    view = memoryview(link) if link else _NOTHING
    if view and view[0] == _QUOTE:
        return view, _ABSENT
    try:
        inner = _decode_link(link)
    except msgspec.MsgspecError:
        return _NOTHING, _ABSENT
    for value in (inner.data, inner.url):
        if value and memoryview(value)[0] == _QUOTE:
            return memoryview(value), inner.detail
    return _NOTHING, inner.detail


def _image(payload: memoryview, *, low_detail: bool) -> int:
    size = None
    for chars in _HEAD_CHARS:
        head = _head(payload, chars)
        data_at = _data_at(head, bare=True)
        if data_at is not None:
            size = image_size(_decoded(head[data_at:]))
        if size is not None or len(payload) <= chars:
            break
    return image_patches(*(size or UNKNOWN_IMAGE_PX), low_detail=low_detail)


def _audio(payload: memoryview, *, bare: bool) -> int:
    head = _head(payload, _AUDIO_HEAD_CHARS)
    data_at = _data_at(head, bare=bare)
    if data_at is None:
        return _UNKNOWN_FRAMES
    size_bytes = max(0, len(payload) - 2 - data_at) * 3 // 4
    return audio_frames(audio_duration_s(_decoded(head[data_at:]), size_bytes))


def _head(payload: memoryview, chars: int) -> bytes:
    """The first bytes of a JSON text, without its quotes and escapes."""
    data = bytes(payload[1 : min(chars, len(payload) - 1)])
    if b"\\" not in data:
        return data
    if len(payload) > chars:  # an escape at the end may not be whole
        cut = data.rfind(b"\\", len(data) - _ESCAPE_CHARS)
        data = data if cut < 0 else data[:cut]
    try:
        return _decode_text(b'"%b"' % data).encode()
    except msgspec.MsgspecError:
        return data[: data.index(b"\\")]


def _data_at(head: bytes, *, bare: bool) -> int | None:
    """Where the base64 begins: after the head of a data URL (RFC 2397), or at once.

    None for any other URL, for nothing at all, and where base64 alone is not expected.
    """
    if head[:5].lower() == b"data:":
        comma = head.find(b",", 5, 1024)
        return comma + 1 if comma > 0 and head[5:comma].lower().endswith(b";base64") else None
    return 0 if bare and head and b":" not in head[:64] else None


def _decoded(data: bytes) -> bytes:
    """Bytes of the beginning of base64, also URL-safe, also in lines; b"" where it is none."""
    data = data.translate(_URL_SAFE, b"\r\n")
    try:
        return binascii.a2b_base64(data[: len(data) // 4 * 4])
    except ValueError:
        return b""
