"""Checks model files before llama.cpp sees them, so that a bad one is named and explained."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mileage.core.errors import ConfigError, ModelFileError
from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.gguf_header import (
    HEADER_BYTES_MAX,
    GgufError,
    GgufHeader,
    MoreBytesError,
    parse_header,
)

__all__ = ["check_adapter", "check_limits", "check_model", "kv_bytes", "read_header", "split_parts"]

_FIRST_READ_BYTES = 4 * 1024 * 1024
_NOT_GGUF = (
    (b"version https://git-lfs", "a Git LFS pointer: run `git lfs pull` for the file itself"),
    (b"PK\x03\x04", "a zip archive (a PyTorch checkpoint or a wheel)"),
    (b"\x80\x02", "a Python pickle (a PyTorch checkpoint)"),
    (b"<", "an HTML or XML page, perhaps the error page of a download"),
    (b"{", "a JSON file"),
    (b"ggml", "a GGML file of before August 2023: convert it to GGUF"),
    (b"ggjt", "a GGML file of before August 2023: convert it to GGUF"),
)
_SPLIT = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf")
_VALUE_BYTES = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
}
"""Bytes of one cached value."""


def read_header(path: Path) -> GgufHeader:
    """Read a GGUF file's header and check that the file is as long as its tensors need.

    Raises ModelFileError, which says what is wrong and what would be right.
    """
    try:
        if path.is_dir():
            raise ModelFileError(str(path), "is a directory, expected a GGUF file")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = _parse_growing(file.fileno(), size, path)
    except FileNotFoundError:
        raise ModelFileError(str(path), "does not exist, expected a GGUF file") from None
    except OSError as error:
        raise ModelFileError(str(path), f"cannot be read: {error.strerror or error}") from error
    if size < header.data_end:
        raise ModelFileError(
            str(path),
            f"is truncated: {size} bytes of the {header.data_end} that its tensors need;"
            " fetch it again",
        )
    return header


def _parse_growing(descriptor: int, size: int, path: Path) -> GgufHeader:
    """Parse with as few bytes as do: most headers are small, large vocabularies are not."""
    if size == 0:
        raise ModelFileError(str(path), "is empty, expected a GGUF file")
    wanted = _FIRST_READ_BYTES
    while True:
        data = _read_at_start(descriptor, wanted)
        try:
            return parse_header(data)
        except MoreBytesError:
            if len(data) < wanted or len(data) >= size:
                raise ModelFileError(
                    str(path), f"is truncated: its header goes on past its {size} bytes"
                ) from None
            if wanted >= HEADER_BYTES_MAX:
                raise ModelFileError(
                    str(path), f"has a header of more than {HEADER_BYTES_MAX} bytes"
                ) from None
            wanted *= 4
        except GgufError as error:
            hint = next((text for head, text in _NOT_GGUF if data.startswith(head)), None)
            detail = f"is {hint}" if hint else str(error)
            raise ModelFileError(str(path), f"is no GGUF file: {detail}") from None


def _read_at_start(descriptor: int, wanted: int) -> bytes:
    chunks: list[bytes] = []
    at = 0
    while at < wanted and (chunk := os.pread(descriptor, wanted - at, at)):
        chunks.append(chunk)
        at += len(chunk)
    return b"".join(chunks)


def split_parts(name: str) -> tuple[str, ...]:
    """File names of all parts of a split model, given that of one; the name itself if not split."""
    match = _SPLIT.fullmatch(name)
    count = int(match["count"]) if match else 0
    if match is None or not 1 <= count <= 9999:
        return (name,)
    return tuple(f"{match['stem']}-{n:05d}-of-{count:05d}.gguf" for n in range(1, count + 1))


def check_model(path: Path) -> GgufHeader:
    """Check a model file, and all parts of a split one; returns the header of the (first) file.

    Raises ModelFileError.
    """
    header = read_header(path)
    if header.kind == "adapter":
        raise ModelFileError(
            str(path), "is a LoRA adapter, expected a model; adapters go into embedded.lora"
        )
    if header.kind == "mmproj":
        raise ModelFileError(str(path), "is the projector of a multimodal model, expected a model")
    parts = split_parts(path.name)
    if parts[0] != path.name:
        raise ModelFileError(str(path), f"is one part of a model: give the first, {parts[0]}")
    if header.split_count is not None and header.split_count > 1 and len(parts) == 1:
        raise ModelFileError(
            str(path), f"is one of {header.split_count} parts, but is not named as such"
        )
    for part in parts[1:]:
        read_header(path.with_name(part))
    return header


def check_adapter(path: Path, model: GgufHeader) -> None:
    """Check that a file is a LoRA adapter for the model. Raises ModelFileError."""
    header = read_header(path)
    if header.kind != "adapter" or header.adapter_type != "lora":
        raise ModelFileError(str(path), f"is no LoRA adapter but a {header.kind}")
    if header.architecture != model.architecture:
        raise ModelFileError(
            str(path),
            f"is an adapter for {header.architecture}, the model is {model.architecture}",
        )


def check_limits(config: EmbeddedConfig, header: GgufHeader) -> None:
    """Check the options against what the model can do. Raises ConfigError."""
    limit = header.context_tokens
    if limit is not None and config.context_tokens > limit:
        raise ConfigError(
            "embedded.context_tokens",
            config.context_tokens,
            f"at most {limit}, the context that the model was trained with",
        )
    for key, value, length in (
        ("embedded.cache_type_k", config.cache_type_k, header.key_length),
        ("embedded.cache_type_v", config.cache_type_v, header.value_length),
    ):
        if value.startswith("q") and length is not None and length % 32:
            raise ConfigError(
                key, value, f"f16, bf16 or f32: heads of {length} values do not fill blocks of 32"
            )


def kv_bytes(config: EmbeddedConfig, header: GgufHeader) -> int | None:
    """Memory of the KV cache that the options ask for; None where the header does not tell.

    An upper bound: layers with a sliding window or without attention need less.
    """
    if header.layers is None or header.kv_heads is None:
        return None
    if header.key_length is None or header.value_length is None:
        return None
    per_token = header.layers * header.kv_heads
    per_token_bytes = per_token * (
        header.key_length * _VALUE_BYTES[config.cache_type_k]
        + header.value_length * _VALUE_BYTES[config.cache_type_v]
    )
    return round(config.slots * config.context_tokens * per_token_bytes)
