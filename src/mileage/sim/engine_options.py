"""Engine options: an engine's configuration with some of its keys set by a file or by options."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from mileage.core.errors import ConfigError
from mileage.policy.eviction.choose import EvictionConfig
from mileage.policy.prefill import PrefillConfig
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_features import (
    AdaptersConfig,
    DisaggregationConfig,
    KvTierConfig,
    SpeculationConfig,
    StaticBatchConfig,
)

__all__ = ["merged", "section_of", "with_options", "with_section"]

_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.+)`")
_MISSING: Final = re.compile(r"Object missing required field `(.+)`")
_ENUM: Final = re.compile(r"Invalid enum value .+")
_TYPE: Final = re.compile(r"Expected `(.+?)`")
_TYPES: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "a table",
    "str": "text",
}
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "adapters": AdaptersConfig.__struct_fields__,
    "disaggregation": DisaggregationConfig.__struct_fields__,
    "eviction": EvictionConfig.__struct_fields__,
    "kv_tiers": KvTierConfig.__struct_fields__,
    "prefill": PrefillConfig.__struct_fields__,
    "speculation": SpeculationConfig.__struct_fields__,
    "static_batch": StaticBatchConfig.__struct_fields__,
}


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
    whole = merged(msgspec.to_builtins(base), section)
    if isinstance(whole["kv_tiers"], Mapping):
        whole["kv_tiers"] = [whole["kv_tiers"]]  # of one tier: kv_tiers.blocks=5000
    try:
        return msgspec.convert(whole, EngineConfig)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        key, at = f"engine{place.rstrip('`')}", place.rstrip("`")
        if (unknown := _UNKNOWN.fullmatch(message)) is not None:
            raise ConfigError(f"{key}.{unknown[1]}", "it", _keys_of(key, unknown[1])) from None
        if (missing := _MISSING.fullmatch(message)) is not None:
            raise ConfigError(f"{key}.{missing[1]}", None, "a value: it is required") from None
        value = _value(whole, at)
        if _ENUM.fullmatch(message) is not None:
            raise ConfigError(key, value, f"one of {', '.join(_choices(at))}") from None
        raise ConfigError(key, value, _expected(message)) from None
    except ConfigError as error:
        if error.key.startswith("engine."):
            raise
        # Of a policy, which does not know where it is used.
        place = _place_of(section, error.key.rpartition(".")[2]) or error.key
        raise error.named(f"engine.{place}") from None


def with_options(base: EngineConfig, options: Iterable[str]) -> EngineConfig:
    """`base` with options KEY=VALUE: see `section_of`. Raises ConfigError as above."""
    return with_section(base, section_of(options))


def section_of(options: Iterable[str]) -> dict[str, Any]:
    """The section that options KEY=VALUE spell: a key may have dots (`adapters.slots=8`), a value
    is JSON, and text where it is none. A later option wins. Raises ConfigError for another form."""
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
        section = merged(section, value)
    return section


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A section with the keys of another one set in it; in tables of both, key by key."""
    whole = dict(base)
    for key, value in changes.items():
        before = whole.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            whole[key] = merged(before, value)
        else:
            whole[key] = value
    return whole


def _place_of(section: Mapping[str, Any], name: str) -> str | None:
    """The dotted key with that last name; None where there is none."""
    for key, value in section.items():
        if key == name:
            return key
        if isinstance(value, Mapping) and (inside := _place_of(value, name)) is not None:
            return f"{key}.{inside}"
    return None


def _expected(message: str) -> str:
    """What a decoder's message says that it expected, in the words of a file."""
    found = _TYPE.match(message)
    if found is None:
        return message[0].lower() + message[1:]
    kinds = (kind.strip() for kind in found[1].split("|"))
    return " or ".join(_TYPES.get(kind, kind) for kind in kinds)


def _keys_of(table: str, key: str) -> str:
    """What is told of a key that a part of an engine does not have."""
    known = _PARTS.get(table.removeprefix("engine.").partition("[")[0], ())
    near = get_close_matches(key, known, n=3) or known
    return f"a key of that table, such as {', '.join(near)}" if near else "no such key"


def _choices(place: str) -> list[str]:
    """The values that a key may have which is one of several words."""
    kind: msgspec.inspect.Type = msgspec.inspect.type_info(EngineConfig)
    for name in place.strip(".").split("."):
        for struct in _kinds(kind):
            if isinstance(struct, msgspec.inspect.StructType):
                fields = {field.name: field.type for field in struct.fields}
                kind = fields[name.partition("[")[0]]
    return [
        str(value)
        for each in _kinds(kind)
        if isinstance(each, msgspec.inspect.LiteralType)
        for value in each.values
    ]


def _kinds(kind: msgspec.inspect.Type) -> Iterator[msgspec.inspect.Type]:
    """What a value may be: each kind of a union, the items of a list."""
    if isinstance(kind, msgspec.inspect.UnionType):
        for each in kind.types:
            yield from _kinds(each)
    elif isinstance(kind, msgspec.inspect.VarTupleType):
        yield from _kinds(kind.item_type)
    else:
        yield kind


def _value(document: Any, place: str) -> object:
    """What is at a place of a document such as `.kv_tiers[...].blocks`; as far as it is told."""
    for name in place.strip(".").split("."):
        if not isinstance(document, Mapping) or name not in document:
            return document
        document = document[name]
    return document
