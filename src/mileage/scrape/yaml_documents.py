"""Documents of a YAML or JSON text, as plain values: bounded, and every error says which one."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import yaml

from mileage.core.errors import ConfigError

__all__ = ["yaml_documents", "yaml_value"]

DOCUMENTS_MAX: Final = 10_000
NODES_MAX: Final = 2_000_000
"""Of one document, with what its aliases repeat: a few lines of them can stand for billions."""
DEPTH_MAX: Final = 200
_FAULTS: Final = (
    yaml.YAMLError,
    ValueError,
    LookupError,
    TypeError,
    ArithmeticError,
    AttributeError,
    RecursionError,
)
"""What the loader raises on values that its tags do not fit (`!!int x`, `!!bool x`) as well."""


_UNPRINTABLE: Final = yaml.reader.Reader.NON_PRINTABLE
_START: Final = re.compile(r"^---(?=\s)", re.MULTILINE)
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where PyYAML was built with it: six times as fast."""


class _Loader(_Base):  # type: ignore[misc]
    """Plain values alone; times stay as they are written, as JSON would have them."""


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
    for first, pairs in _Base.yaml_implicit_resolvers.items()
}


def yaml_documents(text: str, *, place: str) -> list[Any]:
    """The documents of a text, in order; JSON is read as JSON. Empty ones are None.

    Raises:
        ConfigError: one cannot be read; its place is `PLACE, document N` (from 1).
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            return [msgspec.json.decode(text)]
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            pass  # YAML may begin so, too
    return _read(text, place)


def yaml_value(text: object) -> Any:
    """The first document of a text that stands inside of another; None where there is none."""
    if not isinstance(text, str):
        return None
    try:
        return next(iter(yaml_documents(text, place="")), None)
    except ConfigError:
        return None


def _read(text: str, place: str) -> list[Any]:
    found: list[Any] = []
    number = 1
    if (odd := _UNPRINTABLE.search(text)) is not None:
        number += len(_START.findall(text, 0, odd.start()))
        raise _error(place, number, f"YAML or JSON, without {odd.group()!r}")
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            if _size(node, {}, 0) > NODES_MAX:
                raise _error(place, number, f"at most {NODES_MAX} values, aliases written out")
            found.append(loader.construct_document(node))
            number += 1
            if number > DOCUMENTS_MAX:
                raise _error(place, number, f"at most {DOCUMENTS_MAX} documents")
    except _FAULTS as error:
        raise _error(place, number, f"YAML or JSON ({_reason(error)})") from None
    return found


def _error(place: str, number: int, expected: str) -> ConfigError:
    return ConfigError("--manifest", place, expected, place=f"{place}, document {number}")


def _reason(error: Exception) -> str:
    """What is wrong, and on which line: in one line."""
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or str(error).partition("\n")[0] or type(error).__name__
    return f"{what[:200]}, line {mark.line + 1}" if mark is not None else what[:200]


def _size(node: Any, sizes: dict[int, int], depth: int) -> int:
    """Nodes below one, aliases written out; ValueError for one that holds itself."""
    known = sizes.get(id(node))
    if known == 0:
        raise ValueError("an alias of what it stands in")
    if known is not None:
        return known
    if depth > DEPTH_MAX:
        raise ValueError(f"more than {DEPTH_MAX} levels")
    sizes[id(node)] = 0
    total = 1
    if isinstance(node, yaml.SequenceNode):
        total += sum(_size(item, sizes, depth + 1) for item in node.value)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            total += _size(key, sizes, depth + 1) + _size(value, sizes, depth + 1)
    sizes[id(node)] = total
    return total
