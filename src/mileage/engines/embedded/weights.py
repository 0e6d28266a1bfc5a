"""Converts a model's weights once, to a type that this CPU computes faster; the file is cached.

llama.cpp repacks Q4_0 for the vector units of a CPU; a file in Q4_1 or a K type misses that. The
conversion reads the weights as they are, already rounded, and rounds them again: quality is lost
for good, so this is done on request only.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import msgspec

from mileage.core.errors import ConfigError, EngineError, ModelFileError
from mileage.engines.embedded.gguf_header import GgufHeader
from mileage.engines.embedded.gguf_tensors import Tensor, tensor_bytes
from mileage.engines.embedded.model_cache import (
    Progress,
    atomic_file,
    check_free_space,
    exclusive,
)

__all__ = ["WeightType", "convert_weights", "new_types"]

WeightType = Literal["q4_0", "q8_0"]

_FLOATS: Final = frozenset({0, 1, 30})
"""Tensor types F32, F16, BF16."""
_QUANTISED: Final = frozenset({2, 3, 6, 7, 8, 10, 11, 12, 13, 14})
"""Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and the K types."""
_Q8_0: Final = 8
_TARGETS: Final[dict[WeightType, tuple[int, int]]] = {"q4_0": (2, 2), "q8_0": (_Q8_0, 7)}
"""Weight type -> (tensor type, value of general.file_type)."""
_BLOCK_VALUES = 32
_CHUNK_VALUES = 8 * 1024 * 1024
_LINEAR = re.compile(r"blk\.\d+\.(?:attn|ffn)_\w+\.weight")
_NOT_LINEAR = re.compile(r"blk\.\d+\.(?:ffn_gate_inp\w*|attn_rel_b|\w*norm\w*)\.weight")
_VOCABULARY = frozenset({"token_embd.weight", "output.weight"})


class _Source(msgspec.Struct, frozen=True):
    """What a source file was when it was hashed; the same now means the same content."""

    size: int
    mtime_ns: int
    sha256: str


def convert_weights(
    path: Path, header: GgufHeader, target: WeightType, *, cache: Path, progress: Progress
) -> Path:
    """The model with its weights in the type `target`; converted and cached at the first call.

    Raises ConfigError for a model in several files, EngineError where the `gguf` package is
    missing, ModelFileError where a file cannot be read or written.
    """
    if header.split_count is not None and header.split_count > 1:
        raise ConfigError("embedded.weights", target, "as-is for a model in several files")
    types = new_types(header.tensors, target)
    if not types:
        return path
    directory = cache / "converted"
    with exclusive(directory / "convert.lock", progress):
        sha256 = _source_sha256(path, directory, progress)
        converted = directory / f"{path.stem}-{target}-{sha256[:16]}.gguf"
        if not converted.exists():
            quants = _quants()
            check_free_space(directory, _converted_bytes(header, types))
            with atomic_file(converted) as out:
                _write(path, header, target, types, out, quants, progress)
    return converted


def new_types(tensors: Sequence[Tensor], target: WeightType) -> dict[str, int]:
    """Tensor name -> its type after the conversion, of those whose type changes.

    Only the matrices of attention and feed-forward layers are converted. The vocabulary's, which
    lose most by four bits, go no lower than Q8_0, as llama.cpp's own converter keeps them higher.
    """
    wanted = _TARGETS[target][0]
    types = {}
    for tensor in tensors:
        if len(tensor.shape) < 2 or tensor.shape[0] % _BLOCK_VALUES:
            continue
        if tensor.type not in _FLOATS | _QUANTISED:
            continue
        if tensor.name in _VOCABULARY:
            new = _Q8_0 if tensor.type in _FLOATS else tensor.type
        elif _LINEAR.fullmatch(tensor.name) and not _NOT_LINEAR.fullmatch(tensor.name):
            new = wanted
        else:
            continue
        if new != tensor.type:
            types[tensor.name] = new
    return types


def _quants() -> Any:
    try:
        from gguf import quants
    except ImportError as error:
        raise EngineError(
            "embedded",
            "converting weights needs the package gguf: pip install 'mileage[convert]',"
            " or leave embedded.weights as-is",
        ) from error
    return quants


def _source_sha256(path: Path, directory: Path, progress: Progress) -> str:
    """The file's checksum, remembered as long as its size and time of change stay."""
    try:
        stat = path.stat()
        record = directory / f"{hashlib.sha256(str(path.resolve()).encode()).hexdigest()}.json"
        try:
            known = msgspec.json.decode(record.read_bytes(), type=_Source)
        except (OSError, msgspec.MsgspecError):
            known = None
        if known and (known.size, known.mtime_ns) == (stat.st_size, stat.st_mtime_ns):
            return known.sha256
        sha256 = _sha256(path, stat.st_size, progress)
    except OSError as error:
        raise ModelFileError(str(path), f"cannot be read: {error.strerror or error}") from error
    with atomic_file(record) as out:
        out.write(msgspec.json.encode(_Source(stat.st_size, stat.st_mtime_ns, sha256)))
    return sha256


def _sha256(path: Path, size: int, progress: Progress) -> str:
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 24):
            digest.update(chunk)
            done += len(chunk)
            progress(f"reading {path.name}", done, size)
    return digest.hexdigest()


def _retyped(header: GgufHeader, types: dict[str, int]) -> list[Tensor]:
    """The new table of tensors: types changed, offsets laid out anew."""
    table, at = [], 0
    for tensor in header.tensors:
        new = Tensor(tensor.name, tensor.shape, types.get(tensor.name, tensor.type), at)
        table.append(new)
        at += -(-tensor_bytes(new) // header.alignment) * header.alignment
    return table


def _converted_bytes(header: GgufHeader, types: dict[str, int]) -> int:
    last = _retyped(header, types)[-1]
    return header.data_at + last.offset + tensor_bytes(last)


def _write(
    path: Path,
    header: GgufHeader,
    target: WeightType,
    types: dict[str, int],
    out: BinaryIO,
    quants: Any,
    progress: Progress,
) -> None:
    """Copy the metadata byte by byte, write the new table, then every tensor's data."""
    table = _retyped(header, types)
    with path.open("rb") as file:
        metadata = bytearray(file.read(header.table_at))
        if header.file_type_at is not None:
            struct.pack_into("<I", metadata, header.file_type_at, _TARGETS[target][1])
        out.write(metadata)
        for tensor in table:
            out.write(_table_entry(tensor))
        data_at = -(-out.tell() // header.alignment) * header.alignment
        for old, new in zip(header.tensors, table, strict=True):
            out.write(bytes(data_at + new.offset - out.tell()))
            file.seek(header.data_at + old.offset)
            for piece in _pieces(file, old, new.type, quants, path):
                out.write(piece)
                progress(f"converting {path.name} to {target}", file.tell(), header.data_end)


def _table_entry(tensor: Tensor) -> bytes:
    name = tensor.name.encode()
    head = struct.pack("<Q", len(name)) + name + struct.pack("<I", len(tensor.shape))
    shape = struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape)
    return head + shape + struct.pack("<IQ", tensor.type, tensor.offset)


def _pieces(
    file: BinaryIO, tensor: Tensor, new_type: int, quants: Any, path: Path
) -> Iterator[bytes]:
    """The tensor's data in its new type, some rows at a time."""
    rows_left = tensor_bytes(tensor)
    row_bytes = tensor_bytes(Tensor(tensor.name, tensor.shape[:1], tensor.type, 0))
    chunk_bytes = max(1, _CHUNK_VALUES // tensor.shape[0]) * row_bytes
    while rows_left:
        data = file.read(min(chunk_bytes, rows_left))
        if not data:
            raise ModelFileError(str(path), f"ended within the tensor {tensor.name}")
        rows_left -= len(data)
        if new_type == tensor.type:
            yield data
        else:
            yield _requantised(data, row_bytes, tensor.type, new_type, quants)


def _requantised(data: bytes, row_bytes: int, old: int, new: int, quants: Any) -> bytes:
    import numpy as np
    from gguf.constants import GGMLQuantizationType

    rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, row_bytes)
    if old in (0, 1):
        values = rows.view(np.float32 if old == 0 else np.float16).astype(np.float32)
    else:
        values = quants.dequantize(rows, GGMLQuantizationType(old))
    packed: bytes = quants.quantize(values, GGMLQuantizationType(new)).tobytes()
    return packed
