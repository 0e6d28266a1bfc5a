"""ImageHeader: width and height of a PNG, JPEG, WebP or GIF, from its first bytes."""

from __future__ import annotations

import struct

__all__ = ["image_size"]

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_NOT_FRAMES = frozenset((0xC4, 0xC8, 0xCC))
"""JPEG markers from C0 to CF that begin no frame: tables, a reserved one, conditioning."""
_BARE = frozenset((0x01, *range(0xD0, 0xD9)))
"""JPEG markers that no segment follows."""
_SCAN, _END = 0xDA, 0xD9
_STEPS_MAX = 300
"""Segments and fill bytes before the first frame; a colour profile alone may have 255 segments."""


def image_size(head: bytes) -> tuple[int, int] | None:
    """Width and height in pixels as the header claims them, each at least 1.

    None where the format is another one, or `head` ends before the size. Never raises. Formats: PNG
    (ISO/IEC 15948), JPEG (ITU-T T.81), WebP (RFC 9649), GIF89a.
    """
    if head.startswith(_JPEG):
        size = _jpeg(head)
    elif head.startswith(_PNG) and head[12:16] == b"IHDR" and len(head) >= 24:
        size = struct.unpack_from(">II", head, 16)
    elif head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        size = struct.unpack_from("<HH", head, 6)
    elif head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:
        size = _webp(head)
    else:
        return None
    return size if size is not None and min(size) >= 1 else None


def _webp(head: bytes) -> tuple[int, int] | None:
    chunk = head[12:16]
    if chunk == b"VP8X":
        width, height = head[24:27], head[27:30]
        return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
    if chunk == b"VP8L" and head[20] == 0x2F:
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    """The size in the first frame header; each segment is skipped by its length."""
    at = 2
    for _ in range(_STEPS_MAX):
        if at + 9 > len(head) or head[at] != 0xFF:
            return None
        marker = head[at + 1]
        if marker == 0xFF:  # any number of fill bytes may come first
            at += 1
        elif marker in _BARE:
            at += 2
        elif marker in (_SCAN, _END):
            return None
        elif 0xC0 <= marker <= 0xCF and marker not in _NOT_FRAMES:
            height, width = struct.unpack_from(">HH", head, at + 5)
            return width, height
        else:
            at += 2 + max(2, int.from_bytes(head[at + 2 : at + 4], "big"))
    return None
