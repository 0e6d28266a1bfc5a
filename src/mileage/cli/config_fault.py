"""Which part of a configuration tree it is that its struct does not take."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import msgspec

from mileage.core.errors import ConfigError

__all__ = ["Fault", "KeyPath", "find_fault"]

KeyPath: TypeAlias = tuple[str | int, ...]
"""Names of tables and keys, and places in lists."""


class Fault(NamedTuple):
    """The innermost part of the tree that cannot be decoded by itself, and why."""

    path: KeyPath
    error: msgspec.ValidationError | ConfigError


def find_fault(value: Any, kind: Any, path: KeyPath = ()) -> Fault | None:
    """The first fault of the value as a `kind`; None where there is none.

    What decoding the whole says is not enough: it names no keys of dictionaries, and for what a
    struct refuses itself (ConfigError) no path at all.
    """
    try:
        msgspec.convert(value, kind)
    except (msgspec.ValidationError, ConfigError) as error:
        for step, below, kind_below in _parts(value, kind):
            fault = find_fault(below, kind_below, (*path, step))
            if fault is not None:
                return fault
        return Fault(path, error)
    return None


def _parts(value: Any, kind: Any) -> Iterator[tuple[str | int, Any, Any]]:
    """What the value is made of, each with what it must be."""
    arguments = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            if field.encode_name in value:
                yield field.encode_name, value[field.encode_name], field.type
    elif isinstance(value, dict) and origin is dict:
        yield from ((name, below, arguments[1]) for name, below in value.items())
    elif isinstance(value, list) and origin is tuple:
        yield from ((place, below, arguments[0]) for place, below in enumerate(value))
