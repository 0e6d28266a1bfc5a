"""Loads a model and its tokenizer from a Hugging Face directory or a GGUF file, in float32."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from mileage.core.errors import ConfigError, EngineError
from mileage.engines.embedded.model_files import read_header
from mileage.engines.reference_model.tap import NAME, Tap, register

__all__ = ["LoadedModel", "load_model", "weights_sha256"]

_CHUNK_BYTES = 1 << 20
_WEIGHTS = ("*.safetensors", "*.bin")


class LoadedModel(NamedTuple):
    """As transformers gives them."""

    model: Any
    tokenizer: Any
    name: str
    sha256: str
    """Of the file or files with weights."""


def load_model(path: Path, *, tap: Tap, threads: int, key: str = "PATH") -> LoadedModel:
    """The model in float32, whose attention is the tap's.

    Weights of a GGUF file are dequantised. Raises ConfigError for what is no model, EngineError
    where the libraries are missing or cannot read it.
    """
    files = _weight_files(path, key)
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    except ImportError as error:
        needed = "install mileage[quant]: a reference model needs torch and transformers"
        raise EngineError("reference model", f"{needed} ({error.name} is missing)") from None
    torch.set_num_threads(threads)
    register(tap)
    where: dict[str, Any] = {"local_files_only": True}
    quantised: dict[str, Any] = {}
    if path.is_file():
        where["gguf_file"] = path.name
        quantised["quantization_config"] = GgufConfig(dequantize=True)
    source = str(path.parent if path.is_file() else path)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            source, dtype=torch.float32, attn_implementation=NAME, **where, **quantised
        )
        tokenizer = AutoTokenizer.from_pretrained(source, **where)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EngineError(
            str(path), f"no causal language model that can be read: {reason}"
        ) from None
    model.eval()
    return LoadedModel(model, tokenizer, path.name, weights_sha256(files))


def _weight_files(path: Path, key: str) -> tuple[Path, ...]:
    if path.is_dir():
        files = tuple(sorted(found for kind in _WEIGHTS for found in path.glob(kind)))
        if files and (path / "config.json").is_file():
            return files
        raise ConfigError(key, str(path), "a model's directory: config.json and *.safetensors")
    if path.is_file() and path.suffix == ".gguf":
        read_header(path)
        return (path,)
    raise ConfigError(key, str(path), "a Hugging Face model's directory or a GGUF file")


def weights_sha256(files: tuple[Path, ...]) -> str:
    """SHA-256 over the files' bytes, in the order given."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            while chunk := content.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()
