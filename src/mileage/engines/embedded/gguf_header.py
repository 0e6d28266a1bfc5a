"""Reads the header of a GGUF model file: what the model is, and where its last tensor ends.

Layout (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), little-endian: magic, version,
tensor count, metadata count; metadata as (key, type, value); tensors as (name, dimensions, type,
offset); padding; tensor data. Everything is untrusted: no count is believed before the bytes for
it are there, and nothing is kept but small values.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

import msgspec

from mileage.engines.embedded.gguf_tensors import Tensor, tensor_bytes

__all__ = [
    "HEADER_BYTES_MAX",
    "GgufError",
    "GgufHeader",
    "MoreBytesError",
    "parse_header",
]

HEADER_BYTES_MAX = 256 * 1024 * 1024
"""No vocabulary is as large as this; a header that wants more is hostile."""

_ENTRIES_MAX = 1 << 20
_TEXT_KEPT_BYTES_MAX = 1024
_ARRAY_KEPT_MAX = 4096
_DIMENSIONS_MAX = 4
_DEPTH_MAX = 4

_SCALARS: Final = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_STRING, _ARRAY = 8, 9
_U32, _U64 = _SCALARS[4], _SCALARS[10]

Value = bool | int | float | str | tuple[int, ...] | None


class GgufError(ValueError):
    """The bytes are no GGUF header; the message says what is wrong with them."""


class MoreBytesError(Exception):
    """The header goes on past the bytes that were given."""


class GgufHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What the header says. A figure that it does not give is None; per-layer ones are maxima."""

    version: int
    architecture: str
    kind: str
    """`model`, `adapter` (LoRA), `mmproj`, ..."""
    name: str | None = None
    adapter_type: str | None = None
    file_type: int | None = None
    context_tokens: int | None = None
    layers: int | None = None
    embedding_length: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    key_length: int | None = None
    value_length: int | None = None
    pooling_type: int | None = None
    causal: bool | None = None
    split_count: int | None = None
    file_type_at: int | None = None
    """Where the value of general.file_type, 32 bits, stands in the file."""
    table_at: int = 0
    """Where the table of tensors begins, right after the metadata."""
    tensors: tuple[Tensor, ...] = ()
    alignment: int = 32
    data_at: int = 0
    data_end: int = 0
    """The file has at least this many bytes, or it is truncated."""
    metadata: Mapping[str, Value] = {}
    """All small values by their keys."""


class _Cursor:
    """A position in the bytes; every step checks that they reach that far."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.end = data, 0, len(data)

    def skip(self, count: int) -> None:
        """Move on by `count` bytes, which must be there."""
        if count > HEADER_BYTES_MAX:
            raise GgufError(f"a value of {count} bytes at byte {self.at}")
        if count > self.end - self.at:
            raise MoreBytesError
        self.at += count

    def unpack(self, form: struct.Struct) -> bool | int | float:
        """One scalar."""
        start = self.at
        self.skip(form.size)
        value: bool | int | float = form.unpack_from(self.data, start)[0]
        return value

    def count(self, form: struct.Struct = _U64) -> int:
        """One unsigned number."""
        return int(self.unpack(form))

    def text(self) -> str | None:
        """A string; None, and skipped, where it is too long to be a name."""
        length = self.count()
        start = self.at
        self.skip(length)
        if length > _TEXT_KEPT_BYTES_MAX:
            return None
        return self.data[start : self.at].decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Value:
        """A metadata value; None for one that is skipped (long text, text arrays, long arrays)."""
        form = _SCALARS.get(kind)
        if form is not None:
            return self.unpack(form)
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise GgufError(f"unknown metadata type {kind} at byte {self.at}")
        if depth >= _DEPTH_MAX:
            raise GgufError(f"arrays nested deeper than {_DEPTH_MAX} at byte {self.at}")
        return self._array(depth)

    def _array(self, depth: int) -> tuple[int, ...] | None:
        kind, count = self.count(_U32), self.count()
        form = _SCALARS.get(kind)
        if form is not None:
            start = self.at
            self.skip(form.size * count)
            if kind in (6, 12) or count > _ARRAY_KEPT_MAX:
                return None
            return tuple(int(v) for (v,) in form.iter_unpack(self.data[start : self.at]))
        if kind == _STRING:
            self._skip_texts(count)
            return None
        for _ in range(count):  # ends at the bytes' end: each element takes some
            self.value(kind, depth + 1)
        return None

    def _skip_texts(self, count: int) -> None:
        """Vocabularies have hundreds of thousands of these: as few steps as possible for each."""
        unpack, data, end, at = _U64.unpack_from, self.data, self.end, self.at
        try:
            for _ in range(count):
                length: int = unpack(data, at)[0]
                if length > HEADER_BYTES_MAX:
                    raise GgufError(f"a string of {length} bytes at byte {at}")
                at += 8 + length
                if at > end:
                    raise MoreBytesError
        except struct.error:
            raise MoreBytesError from None
        self.at = at


def parse_header(data: bytes) -> GgufHeader:
    """Parse the first bytes of a file; `data` may hold more than the header.

    Raises MoreBytesError where the header is longer than `data`, GgufError where it is none.
    """
    cursor = _Cursor(data)
    version = _version(cursor)
    tensor_count, entries = cursor.count(), cursor.count()
    for name, count in (("tensors", tensor_count), ("metadata entries", entries)):
        if count > _ENTRIES_MAX:
            raise GgufError(f"claims {count} {name}")
    metadata: dict[str, Value] = {}
    file_type_at = None
    for _ in range(entries):
        key, kind = cursor.text(), cursor.count(_U32)
        if key == "general.file_type" and kind in (4, 5):
            file_type_at = cursor.at
        value = cursor.value(kind)
        if key is not None and value is not None:
            metadata[key] = value
    table_at = cursor.at
    tensors = tuple(_tensor(cursor) for _ in range(tensor_count))
    alignment = _number(metadata, "general.alignment") or 32
    if not 1 <= alignment <= 1 << 20:
        raise GgufError(f"general.alignment is {alignment}")
    data_at = -(-cursor.at // alignment) * alignment
    return msgspec.structs.replace(
        _model(metadata, version),
        metadata=metadata,
        file_type_at=file_type_at,
        table_at=table_at,
        tensors=tensors,
        alignment=alignment,
        data_at=data_at if tensors else cursor.at,
        data_end=max((data_at + t.offset + tensor_bytes(t) for t in tensors), default=cursor.at),
    )


def _version(cursor: _Cursor) -> int:
    if cursor.data[:4] != b"GGUF"[: max(1, cursor.end)]:
        raise GgufError(f"begins with {cursor.data[:4]!r}, not with b'GGUF'")
    cursor.skip(4)
    version = cursor.count(_U32)
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "big"), "little")
        order = " in big-endian byte order" if swapped in (2, 3) else ""
        raise GgufError(f"GGUF version {swapped if order else version}{order}, not 2 or 3")
    return version


def _tensor(cursor: _Cursor) -> Tensor:
    name = cursor.text()
    dimensions = cursor.count(_U32)
    if name is None or not 1 <= dimensions <= _DIMENSIONS_MAX:
        raise GgufError(f"tensor {name!r} has {dimensions} dimensions")
    shape = tuple(cursor.count() for _ in range(dimensions))
    return Tensor(name, shape, cursor.count(_U32), cursor.count())


def _number(metadata: dict[str, Value], key: str) -> int | None:
    """An integer, or the largest of an array of them (a figure given per layer)."""
    value = metadata.get(key)
    if isinstance(value, tuple):
        return max(value, default=None)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None


def _text(metadata: dict[str, Value], key: str) -> str | None:
    value = metadata.get(key)
    return value if isinstance(value, str) else None


def _model(metadata: dict[str, Value], version: int) -> GgufHeader:
    architecture = _text(metadata, "general.architecture")
    if not architecture:
        raise GgufError("names no general.architecture")
    causal = metadata.get(f"{architecture}.attention.causal")

    def number(key: str) -> int | None:
        return _number(metadata, f"{architecture}.{key}")

    heads, width = number("attention.head_count"), number("embedding_length")
    head_length = width // heads if width and heads else None
    key_length, value_length = number("attention.key_length"), number("attention.value_length")
    return GgufHeader(
        version=version,
        architecture=architecture,
        kind=_text(metadata, "general.type") or "model",
        name=_text(metadata, "general.name"),
        adapter_type=_text(metadata, "adapter.type"),
        file_type=_number(metadata, "general.file_type"),
        context_tokens=number("context_length"),
        layers=number("block_count"),
        embedding_length=width,
        heads=heads,
        kv_heads=number("attention.head_count_kv") or heads,
        key_length=key_length or head_length,
        value_length=value_length or head_length,
        pooling_type=number("pooling_type"),
        causal=causal if isinstance(causal, bool) else None,
        split_count=_number(metadata, "split.count"),
    )
