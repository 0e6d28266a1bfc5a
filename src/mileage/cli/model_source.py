"""What a `--model` argument means: a built-in name, a config.json, or a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from mileage.core.errors import ConfigError, ModelFileError
from mileage.costmodel.architecture import Architecture
from mileage.costmodel.catalogue import architecture
from mileage.costmodel.gguf_metadata import from_gguf_metadata
from mileage.costmodel.hf_config import from_hf_config
from mileage.costmodel.precision import Precision, precision
from mileage.engines.embedded.gguf_header import GgufHeader
from mileage.engines.embedded.gguf_tensors import tensor_bytes
from mileage.engines.embedded.model_files import check_model, read_header, split_parts

__all__ = ["ModelSource", "model_source"]

_DEFAULT: Final[Precision] = "bf16"
_HALF_BITS: Final = 12.0
_BYTE_BITS: Final = 6.5
"""More bits per weight than this are half precision, and bytes; fewer are INT4. Q6_K has 6.6."""
_EMBEDDING: Final = "token_embd.weight"
_OUTPUT: Final = "output.weight"


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """A model, and how its weights are stored."""

    architecture: Architecture
    weights: Precision = _DEFAULT

    def precision(self, asked: str | None) -> Precision:
        """Of the weights: as asked for, else as they are stored. Raises ConfigError."""
        return self.weights if asked is None else precision(asked)


def model_source(name: str) -> ModelSource:
    """The model of that name; of a Hugging Face config.json, or the directory with one; or of a
    GGUF file, which tells how its weights are stored as well.

    Raises ConfigError: the nearest names for a name that is not known, the file and its key for
    one that cannot be used.
    """
    path = Path(name)
    if path.suffix == ".gguf":
        return _of_gguf(path)
    if path.is_dir():
        path /= "config.json"
    elif path.suffix != ".json":
        return ModelSource(architecture=architecture(name))
    try:
        config = msgspec.json.decode(path.read_bytes(), type=dict)
    except OSError as error:
        expected = f"a config.json that can be read ({error.strerror or error})"
        raise ConfigError("model", name, expected) from None
    except msgspec.MsgspecError as error:
        raise ConfigError("model", name, f"a config.json: {error}") from None
    try:
        return ModelSource(architecture=from_hf_config(config, path.resolve().parent.name))
    except ConfigError as error:
        raise ConfigError(error.key, error.value, error.expected, place=str(path)) from None


def _of_gguf(path: Path) -> ModelSource:
    """The shape is in the metadata; the size of the vocabulary, and whether the output matrix is
    the embedding, are in the table of tensors, which a split file has in parts."""
    try:
        check_model(path)
        headers = [read_header(path.with_name(part)) for part in split_parts(path.name)]
    except ModelFileError as error:
        raise ConfigError("model", error.path, f"a GGUF file: it {error.message}") from None
    tensors = {tensor.name: tensor for header in headers for tensor in header.tensors}
    first = headers[0]
    metadata = dict(first.metadata)
    embedding = tensors.get(_EMBEDDING)
    if embedding is not None and len(embedding.shape) == 2:
        metadata.setdefault(f"{first.architecture}.vocab_size", embedding.shape[1])
    metadata["tied_embeddings"] = bool(tensors) and _OUTPUT not in tensors
    try:
        found = from_gguf_metadata(metadata)
    except ConfigError as error:
        raise ConfigError(error.key, error.value, error.expected, place=str(path)) from None
    return ModelSource(architecture=found, weights=_stored(headers))


def _stored(headers: list[GgufHeader]) -> Precision:
    """The precision of the cost model that is nearest to the file's: by bits per weight."""
    count = size = 0
    for header in headers:
        for tensor in header.tensors:
            weights = 1
            for length in tensor.shape:
                weights *= length
            count += weights
            size += tensor_bytes(tensor)
    if not count:
        return _DEFAULT
    bits = 8.0 * size / count
    return "bf16" if bits > _HALF_BITS else "int8" if bits > _BYTE_BITS else "int4"
