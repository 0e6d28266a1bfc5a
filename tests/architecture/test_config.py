"""Configuration structs refuse keys that they do not know."""

from __future__ import annotations

import msgspec

from mileage.cli.config import Config
from mileage.engines.config import EmbeddedConfig


def structs_in(type_: msgspec.inspect.Type) -> set[type[msgspec.Struct]]:
    """Every struct type that a value of this type can hold, at any depth."""
    found: set[type[msgspec.Struct]] = set()
    waiting: list[object] = [type_]
    while waiting:
        item = waiting.pop()
        if isinstance(item, msgspec.inspect.StructType):
            if item.cls in found:
                continue
            found.add(item.cls)
            waiting.extend(field.type for field in item.fields)
        elif isinstance(item, msgspec.inspect.Type):
            for name in ("types", "item_types", "item_type", "key_type", "value_type"):
                value = getattr(item, name, None)
                waiting.extend(value if isinstance(value, tuple) else [value])
    return found


def lenient(root: type[msgspec.Struct]) -> list[str]:
    """Names of the structs in `root` that take unknown keys in silence or can be changed."""
    return sorted(
        struct.__name__
        for struct in structs_in(msgspec.inspect.type_info(root))
        if not (struct.__struct_config__.forbid_unknown_fields and struct.__struct_config__.frozen)
    )


def test_configuration_refuses_unknown_keys() -> None:
    assert EmbeddedConfig in structs_in(msgspec.inspect.type_info(Config))
    assert lenient(Config) == []


class Inner(msgspec.Struct, frozen=True):
    """Takes unknown keys in silence."""

    x: int = 1


class Outer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holds a lenient struct, some levels down."""

    inner: dict[str, tuple[Inner | None, ...]] = {}


def test_a_lenient_struct_is_found() -> None:
    assert lenient(Outer) == ["Inner"]
