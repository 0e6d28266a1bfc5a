"""The architecture that a `--model` argument means: a built-in name, or a config.json."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mileage.core.errors import ConfigError
from mileage.costmodel.architecture import Architecture
from mileage.costmodel.catalogue import architecture
from mileage.costmodel.hf_config import from_hf_config

__all__ = ["model_of"]


def model_of(name: str) -> Architecture:
    """The architecture of that name; or of a Hugging Face config.json, or the directory with one.

    Raises ConfigError: the nearest names for a name that is not known, the file and its key for
    one that cannot be used.
    """
    path = Path(name)
    if path.is_dir():
        path /= "config.json"
    elif path.suffix != ".json":
        return architecture(name)
    try:
        config = msgspec.json.decode(path.read_bytes(), type=dict)
    except OSError as error:
        expected = f"a config.json that can be read ({error.strerror or error})"
        raise ConfigError("model", name, expected) from None
    except msgspec.MsgspecError as error:
        raise ConfigError("model", name, f"a config.json: {error}") from None
    try:
        return from_hf_config(config, path.resolve().parent.name)
    except ConfigError as error:
        raise ConfigError(error.key, error.value, error.expected, place=str(path)) from None
