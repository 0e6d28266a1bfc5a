"""Images and recordings made in code, and prompts that hold them, for tests and benchmarks."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from random import Random
from typing import Any

__all__ = ["data_url", "gif", "jpeg", "multimodal_chat", "png", "wav", "webp"]

_SIZE_MAX = 0xFFFF


def png(width_px: int, height_px: int, *, seed: int = 0, noise: bool = True) -> bytes:
    """A whole, valid RGB image; of noise it does not compress: 3 bytes a pixel."""
    row_bytes = 3 * width_px
    rng = Random(seed)
    rows = b"".join(
        b"\0" + (rng.randbytes(row_bytes) if noise else bytes(row_bytes)) for _ in range(height_px)
    )
    header = struct.pack(">IIBBBBB", width_px, height_px, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def jpeg(width_px: int, height_px: int, *, before: Sequence[bytes] = ()) -> bytes:
    """The head of a JPEG up to its first scan; `before` are payloads of segments before the frame:
    a preview or a colour profile, say."""
    segments = [(0xE1, data) for data in before]
    segments.append((0xC4, bytes(17)))  # a table between: its marker is among those of frames
    segments.append((0xC2, struct.pack(">BHHB", 8, height_px, width_px, 1) + bytes(3)))
    body = b"".join(
        struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data for marker, data in segments
    )
    return b"\xff\xd8" + body + b"\xff\xda\x00\x08" + bytes(64)


def gif(width_px: int, height_px: int) -> bytes:
    """The head of a GIF."""
    return b"GIF89a" + struct.pack("<HH", width_px, height_px) + bytes(16)


def webp(width_px: int, height_px: int, *, chunk: bytes = b"VP8X") -> bytes:
    """The head of a WebP: VP8X (extended), VP8L (lossless) or `VP8 ` (lossy)."""
    if chunk == b"VP8X":
        size = (width_px - 1).to_bytes(3, "little") + (height_px - 1).to_bytes(3, "little")
        body = bytes(4) + size
    elif chunk == b"VP8L":
        body = b"\x2f" + (width_px - 1 | height_px - 1 << 14).to_bytes(4, "little") + bytes(5)
    else:
        body = bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", width_px, height_px)
    data = b"WEBP" + chunk + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(data)) + data


def wav(
    duration_s: float, *, rate_hz: int = 16_000, before: bytes = b"", streamed: bool = False
) -> bytes:
    """16-bit mono silence. `before` is a chunk's payload before the format; `streamed`: the sizes
    in the header are those of a writer that does not know them yet."""
    data = bytes(2 * round(rate_hz * duration_s))
    chunks = b"JUNK" + struct.pack("<I", len(before)) + before + bytes(len(before) % 2)
    form = struct.pack("<HHIIHH", 1, 1, rate_hz, 2 * rate_hz, 2, 16)
    head = (chunks if before else b"") + b"fmt " + struct.pack("<I", len(form)) + form
    size = 0xFFFFFFFF if streamed else len(data)
    return (
        b"RIFF" + struct.pack("<I", size if streamed else 4 + len(head) + 8 + len(data))
        + b"WAVE" + head + b"data" + struct.pack("<I", size) + data
    )  # fmt: skip


def data_url(data: bytes, kind: str = "image/png") -> str:
    """A data URL in base64."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def multimodal_chat(
    text: str,
    *,
    model: str = "m",
    images: Sequence[bytes | str] = (),
    audio: Sequence[bytes] = (),
    **fields: Any,
) -> dict[str, Any]:
    """A chat request with images (their bytes, or a URL) and WAV recordings beside the text."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
    for image in images:
        url = image if isinstance(image, str) else data_url(image)
        parts.append({"type": "image_url", "image_url": {"url": url}})
    for recording in audio:
        data = base64.b64encode(recording).decode()
        parts.append({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}})
    return {"model": model, "messages": [{"role": "user", "content": parts}], **fields}
