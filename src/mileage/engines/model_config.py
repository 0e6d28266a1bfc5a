"""Configuration of `[[models]]`: several embedded models, each in a child process of its own."""

from __future__ import annotations

import re
from typing import Literal

from mileage.core.errors import ConfigError
from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.resolve import served_name

__all__ = ["ModelConfig"]

_REPLICA = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


class ModelConfig(EmbeddedConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[models]]` entry: a model that llama.cpp serves in a child process of its own, loaded
    when it is needed and unloaded when it is not (see `[idle]`). The other keys are those of
    `[embedded]`; `lora_slots` and `restart_backoff_s` have no effect here."""

    load: Literal["demand", "start"] = "demand"
    """demand: with the first request for it; start: with the gateway."""

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except ConfigError as error:
            key = error.key.replace("embedded.", "models.", 1)
            expected = f"{error.expected} (model {self.replica})"
            raise ConfigError(key, error.value, expected) from error
        if not _REPLICA.fullmatch(self.replica):
            expected = "up to 128 letters, digits and . _ : / -, a letter or digit first"
            raise ConfigError("models.served_name", self.replica, expected)

    @property
    def replica(self) -> str:
        """The replica's name, which is the model's as clients use it."""
        return served_name(self)
