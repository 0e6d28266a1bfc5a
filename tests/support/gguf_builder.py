"""Builds GGUF files of a few hundred bytes, valid or broken where a test wants it."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

__all__ = ["GgufTensor", "gguf", "gguf_header", "gguf_text", "gguf_value"]

GgufTensor = tuple[str, Sequence[int], int, int]
"""Name, shape, type, offset."""

_FORMS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q"}


def gguf_text(text: str) -> bytes:
    """A string as GGUF stores it."""
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(value: object) -> bytes:
    """A metadata value with its type in front; raw bytes are taken as they are."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + gguf_text(value)
    if isinstance(value, list) and value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(gguf_text, value))
    if isinstance(value, list):
        return struct.pack(f"<IIQ{len(value)}I", 9, 4, len(value), *value)
    raise TypeError(type(value))


def gguf_header(
    metadata: Mapping[str, object] | None = None,
    tensors: Sequence[GgufTensor] = (),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    tensor_count: int | None = None,
    entry_count: int | None = None,
) -> bytes:
    """A header; a llama model where no metadata is given. The counts can be made to lie."""
    if metadata is None:
        metadata = {"general.architecture": "llama"}
    out = magic + struct.pack("<I", version)
    out += struct.pack("<Q", len(tensors) if tensor_count is None else tensor_count)
    out += struct.pack("<Q", len(metadata) if entry_count is None else entry_count)
    for key, value in metadata.items():
        out += gguf_text(key) + gguf_value(value)
    for name, shape, kind, offset in tensors:
        out += gguf_text(name) + struct.pack("<I", len(shape))
        out += struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, offset)
    return out


def gguf(
    metadata: Mapping[str, object] | None = None,
    tensors: Sequence[GgufTensor] = (),
    data: bytes = b"",
) -> bytes:
    """A whole file: header, padding to 32 bytes, tensor data."""
    header = gguf_header(metadata, tensors)
    return header + bytes(-len(header) % 32) + data
