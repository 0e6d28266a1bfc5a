"""Which part of a configuration tree it is that its struct does not take."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from mileage.core.errors import ConfigError

__all__ = ["Fault", "KeyPath", "expected_of", "find_fault", "shown_of"]

KeyPath: TypeAlias = tuple[str | int, ...]
"""Names of tables and keys, and places in lists."""

_TYPES: Final = {
    "array": "a list",
    "bool": "true or false",
    "date": "a day, such as 2026-01-31",
    "float": "a number",
    "int": "a whole number",
    "object": "a table",
    "str": "text in quotes",
}
_SECRET: Final = re.compile(
    r"(?:^|[_-])(?:token|keys?|hash(?:es)?|secrets?|passwords?|passwd|salts?|dsn|urls?|headers?)(?:[_-]env)?$",
    re.IGNORECASE,
)
"""A key whose value nobody else may read, or may hold a password. An API key is found where only
the name of its variable belongs, too. `tokens` are those of a text."""
_CREDENTIALS: Final = re.compile(r"://[^/\s]*@|^(?:sk|hf|ghp)[-_]\w{8}|^Bearer ", re.IGNORECASE)
_SHOWN_MAX: Final = 80
_SCALARS: Final = (bool, float, int, str)


class Fault(NamedTuple):
    """The innermost part of the tree that cannot be decoded by itself, and why."""

    path: KeyPath
    error: msgspec.ValidationError | ConfigError
    value: Any
    kind: Any


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
        return Fault(path, error, value, kind)
    return None


def expected_of(message: str, kind: Any) -> str:
    """What a value of this kind must be, for people: msgspec's message does not tell the choices.

    `message` is msgspec's.
    """
    if choices := _choices(kind):
        return "one of " + ", ".join(choices)
    if message.endswith("encoded date"):
        return _TYPES["date"]
    types = re.match(r"Expected `([^`]+)`", message)
    if types is None:
        return message
    return " or ".join(_TYPES.get(name, name) for name in types[1].split(" | ") if name != "null")


def shown_of(value: Any, kind: Any, path: KeyPath = ()) -> object:
    """The value as an error may tell it: never what could be a secret, by the names on its path or
    as an address with a password in it. Of lists and tables, and of a text in the place of one,
    only what they are: they may hold anything."""
    if isinstance(value, str) and _choices(kind):
        return value
    if any(isinstance(name, str) and _SECRET.search(name) for name in path):
        return "(as given)"
    if isinstance(value, str):
        if not any(part in _SCALARS for part in (kind, *typing.get_args(kind))):
            return "(a text)"
        return "(as given)" if _CREDENTIALS.search(value) else value[:_SHOWN_MAX]
    if isinstance(value, dict | list):
        return "(a table)" if isinstance(value, dict) else "(a list)"
    return value


def _choices(kind: Any) -> tuple[str, ...]:
    """The texts that a value of this kind must be one of; none where it may be any."""
    kinds = (kind, *typing.get_args(kind))
    literal = next((part for part in kinds if typing.get_origin(part) is typing.Literal), None)
    return tuple(map(str, typing.get_args(literal)))


def _parts(value: Any, kind: Any) -> Iterator[tuple[str | int, Any, Any]]:
    """What the value is made of, each with what it must be."""
    some = [part for part in typing.get_args(kind) if part is not type(None)]
    if len(some) == 1 and type(None) in typing.get_args(kind):  # X | None
        kind = some[0]
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
