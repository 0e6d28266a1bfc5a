"""Engine options: an engine's configuration with some of its keys set by a file or by options."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from mileage.core.errors import ConfigError
from mileage.sim.engine_config import EngineConfig

__all__ = ["with_options", "with_section"]


def with_section(base: EngineConfig, section: Mapping[str, Any]) -> EngineConfig:
    """`base` with the keys of a TOML or JSON section; tables in it set keys of their parts, and
    leave the others as they are.

    Raises ConfigError that names the key, as `engine.KEY`, with the nearest ones for one that does
    not exist.
    """
    for key in section:
        if key not in EngineConfig.__struct_fields__:
            near = get_close_matches(key, EngineConfig.__struct_fields__, n=3)
            expected = f"a key of an engine, such as {', '.join(near or ('kv_tiers',))}"
            raise ConfigError(f"engine.{key}", section[key], expected)
    merged = _merged(msgspec.to_builtins(base), section)
    try:
        return msgspec.convert(merged, EngineConfig)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        key = f"engine{place.rstrip('`')}"
        raise ConfigError(key, _value(merged, place.rstrip("`")), message) from None


def with_options(base: EngineConfig, options: Iterable[str]) -> EngineConfig:
    """`base` with options KEY=VALUE: a key may have dots (`adapters.slots=8`), a value is JSON, and
    text where it is none. A later option wins. Raises ConfigError as above."""
    section: dict[str, Any] = {}
    for option in options:
        key, equals, text = option.partition("=")
        path = key.strip().split(".")
        if not equals or not all(path):
            raise ConfigError("engine option", option, "KEY=VALUE, such as adapters.slots=8")
        try:
            value = json.loads(text)
        except ValueError:
            value = text.strip()
        for name in reversed(path):
            value = {name: value}
        section = _merged(section, value)
    return with_section(base, section)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(before, value)
        else:
            merged[key] = value
    return merged


def _value(document: Any, place: str) -> object:
    """What is at a place of a document such as `.kv_tiers[...].blocks`; as far as it is told."""
    for name in place.strip(".").split("."):
        if not isinstance(document, Mapping) or name not in document:
            return document
        document = document[name]
    return document
