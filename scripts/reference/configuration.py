"""docs/reference/configuration.md out of the structs that configuration is decoded into."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

__all__ = ["Key", "Section", "render", "sections"]

INTRO = """\
# Configuration

<!-- Written by `make docs` from the code; change the docstrings there. -->

`mileage serve --config mileage.toml` reads one TOML file. Every section and key may be left out; a
key that does not exist is an error that names it. A command-line option wins over the environment,
the environment over the file, the file over the default.

A key `KEY` of a plain section `[SECTION]` can be set by the environment variable
`MILEAGE_SECTION_KEY`: `MILEAGE_SERVER_PORT=9000` is `port = 9000` in `[server]`. Lists are
separated by commas there. Units end the names: `_s` seconds, `_bytes` bytes, `_tokens` tokens,
`_ratio` 0 to 1; `_max` and `_min` are bounds.

Hot keys are changed while the gateway runs, by a [reload](../how-to/reload.md): when the file
changes, by SIGHUP, by `mileage reload`. The others keep their value until the next start.
"""


class Key(NamedTuple):
    """One key of a section. `default` is TOML, `-` where there is none to set, or `required`."""

    name: str
    type: str
    default: str
    meaning: str


class Section(NamedTuple):
    """One section: its header as TOML writes it (empty: top level), its meaning, its keys."""

    header: str
    meaning: str
    keys: list[Key]


def render(root: type[msgspec.Struct], is_hot: Callable[[str, str], bool]) -> str:
    """The page, for a root struct and all structs in it.

    `is_hot` tells of a section and a key of it whether a reload changes it.
    """
    parts = [INTRO]
    for section in sections(root):
        title = f"`{section.header}`" if section.header else "Top level"
        lines = [f"## {title}", ""]
        if section.meaning:
            lines += [section.meaning, ""]
        lines += ["| Key | Type | Default | Hot | Meaning |", "|---|---|---|---|---|"]
        for k in section.keys:
            top, key, *_ = [*section.header.strip("[]").split("."), k.name]
            hot = "yes" if is_hot(top, key) else "restart"
            lines.append(f"| `{k.name}` | {k.type} | {k.default} | {hot} | {k.meaning} |")
        parts.append("\n".join([*lines, ""]))
    return "\n".join(parts)


def sections(root: type[msgspec.Struct]) -> list[Section]:
    """The sections of the root struct, in the order of its fields, after its own plain keys."""
    plain: list[Key] = []
    nested: list[Section] = []
    documented = _field_docs(root)
    for field in _fields(root):
        meaning = documented.get(field.name, "")
        found = _struct_in(field.type)
        if found is None and isinstance(field.type, msgspec.inspect.DictType):
            value = _type_name(field.type.value_type)
            nested.append(Section(f"[{field.encode_name}]", "", [Key("NAME", value, "-", meaning)]))
        elif found is None:
            plain.append(_key(field, meaning))
        else:
            nested += _section(field.encode_name, meaning, *found)
    top = [Section("", "", plain)] if plain else []
    return top + nested


def _section(
    path: str, meaning: str, header: str, struct: type[msgspec.Struct]
) -> Iterator[Section]:
    """A struct's section, then those of the structs in it."""
    documented = _field_docs(struct)
    keys: list[Key] = []
    below: list[Section] = []
    for field in _fields(struct):
        said = documented.get(field.name, "")
        found = _struct_in(field.type)
        if found is None and isinstance(field.type, msgspec.inspect.DictType):
            inside = header.strip("[]").format(path)
            named = [Key("NAME", _type_name(field.type.value_type), "-", said)]
            below.append(Section(f"[{inside}.{field.encode_name}]", "", named))
        elif found is None:
            keys.append(_key(field, said))
        else:
            inside = header.strip("[]").format(path)
            below += _section(f"{inside}.{field.encode_name}", said, *found)
    yield Section(header.format(path), " ".join(filter(None, [_paragraphs(struct), meaning])), keys)
    yield from below


def _struct_in(type_: msgspec.inspect.Type) -> tuple[str, type[msgspec.Struct]] | None:
    """The struct that makes the type a section, and the form of that section's header."""
    if isinstance(type_, msgspec.inspect.UnionType):  # a struct, or None
        structs = [t for t in type_.types if isinstance(t, msgspec.inspect.StructType)]
        type_ = structs[0] if len(structs) == 1 else type_
    match type_:
        case msgspec.inspect.StructType():
            return "[{}]", type_.cls
        case msgspec.inspect.VarTupleType(item_type=msgspec.inspect.StructType() as item):
            return "[[{}]]", item.cls
        case msgspec.inspect.DictType(value_type=msgspec.inspect.StructType() as value):
            return "[{}.NAME]", value.cls
    return None


def _fields(struct: type[msgspec.Struct]) -> Iterator[msgspec.inspect.Field]:
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)
    yield from info.fields


def _key(field: msgspec.inspect.Field, meaning: str) -> Key:
    default = field.default
    if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    return Key(field.encode_name, _type_name(field.type), _toml(default), meaning)


def _toml(value: object) -> str:
    if value is msgspec.NODEFAULT:
        return "required"
    if value is None:
        return "-"
    if isinstance(value, tuple | list):
        return "`[" + ", ".join(json.dumps(v) for v in value) + "]`"
    return f"`{json.dumps(value)}`"


def _type_name(type_: msgspec.inspect.Type) -> str:
    match type_:
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.IntType():
            return "integer"
        case msgspec.inspect.FloatType():
            return "number"
        case msgspec.inspect.StrType():
            return "text"
        case msgspec.inspect.DateType():
            return "date"
        case msgspec.inspect.LiteralType():
            return " or ".join(f"`{json.dumps(v)}`" for v in type_.values)
        case msgspec.inspect.VarTupleType():
            return f"list of {_type_name(type_.item_type)}"
        case msgspec.inspect.TupleType():
            return f"[{', '.join(_type_name(t) for t in type_.item_types)}]"
        case msgspec.inspect.UnionType():
            some = [t for t in type_.types if not isinstance(t, msgspec.inspect.NoneType)]
            return " or ".join(_type_name(t) for t in some)
    raise TypeError(f"no name for {type_}: teach it to scripts/reference/configuration.py")


def _paragraphs(struct: type[msgspec.Struct]) -> str:
    """The struct's docstring, without its first words `Section [x]:` that only repeat the title."""
    text = inspect.cleandoc(struct.__doc__ or "")
    if text.startswith(("Section ", "One `[[", "`[")):
        text = text.partition(": ")[2]
        first = text.partition(" ")[0]
        if "." not in first:  # not the name of a program
            text = text[:1].upper() + text[1:]
    return text


def _field_docs(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The string that follows each field's definition, by the field's name."""
    documented: dict[str, str] = {}
    for cls in reversed(struct.__mro__):
        if not issubclass(cls, msgspec.Struct) or cls is msgspec.Struct:
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
        body: list[Any] = tree.body[0].body  # type: ignore[attr-defined]
        for field, after in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                match after:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        text = " ".join(text.split()).replace("|", "\\|")
                        # A TOML file cannot say None.
                        documented[field.target.id] = re.sub(r"\bNone:", "unset:", text)
    return documented
