"""Document: the configuration as it is written: file, environment and flags, as one tree."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mileage.cli.config_fault import Fault, KeyPath, expected_of, find_fault, shown_of
from mileage.cli.toml_line import line_of
from mileage.core.errors import ConfigError

__all__ = ["Document"]

_FLAGS = "the command line"
_TRIAL = "the settings on trial"
_UNKNOWN = "no such key; see docs/reference/configuration.md"

_ELEMENT = re.compile(r"\[(\d+)\]\.?")
_FIRST = re.compile(r"[.\[]")

T = TypeVar("T")


class Document:
    """Flag > environment > file, merged; what is wrong with it is told with its place.

    `path` is a TOML file, or a JSON one where it is named so, or None. `flags` maps dotted keys to
    values, None where a flag was not given; `trial` does likewise, over all else. A table is added
    to that of the file, a list replaces it. The environment's keys are MILEAGE_SECTION_KEY, for
    those sections of `root` that are one struct.

    Raises ConfigError for a file that cannot be read or is no TOML, and for a variable whose text
    is no value of its key.
    """

    def __init__(
        self,
        path: Path | None,
        flags: Mapping[str, Any],
        environ: Mapping[str, str],
        root: type[msgspec.Struct],
        *,
        trial: Mapping[str, Any] | None = None,
    ) -> None:
        self._path = path
        self._text = "" if path is None else _read(path)
        self._tree: dict[str, Any] = _parse(self._text, path)
        self._elsewhere: dict[KeyPath, str] = {}  # what is not of the file -> what set it
        for section, struct in _sections(root).items():
            for field in msgspec.structs.fields(struct):
                variable = f"MILEAGE_{section}_{field.encode_name}".upper()
                if (text := environ.get(variable)) is not None:
                    value = _from_text(variable, text, field.type)
                    self._put((section, field.encode_name), value, variable)
        for key, value in flags.items():
            if value is not None:
                self._put(tuple(key.split(".")), value, _FLAGS)
        for key, value in (trial or {}).items():
            self._put(tuple(key.split(".")), value, _TRIAL)

    def decode(self, kind: type[T]) -> T:
        """The tree as a `kind`; raises ConfigError, which names the key and its place."""
        try:
            return msgspec.convert(self._tree, kind)
        except (msgspec.ValidationError, ConfigError):
            fault = find_fault(self._tree, kind)
            if fault is None:
                raise
            raise self._error(fault) from None

    def placed(self, error: ConfigError, path: KeyPath | None = None) -> ConfigError:
        """The same error with the place of its key, or of `path`, where it has none."""
        if error.place is not None:
            return error
        place = self._place(path or self._path_of(error.key))
        return ConfigError(error.key, error.value, error.expected, place=place)

    # --- errors -------------------------------------------------------------------------------

    def _error(self, fault: Fault) -> ConfigError:
        error, path = fault.error, fault.path
        if isinstance(error, ConfigError):
            last = error.key.rpartition(".")[2]
            if not path:  # of the whole: the key is complete
                return self.placed(error)
            path = (*path, last)
            key = _shown(path) if "*" in error.key else error.key
            return ConfigError(key, error.value, error.expected, place=self._place(path))
        message = str(error).partition(" - at `$")[0]
        named = message.split("`")[1] if "`" in message else ""
        if message.startswith("Object contains unknown field"):
            path = (*path, named)
            return ConfigError(_shown(path), "(present)", _UNKNOWN, place=self._place(path))
        if message.startswith("Object missing required field"):
            key = _shown((*path, named))
            return ConfigError(key, "(absent)", "a value: it is required", place=self._place(path))
        place = self._place(path)
        expected = expected_of(message, fault.kind)
        shown = shown_of(fault.value, fault.kind, path)
        return ConfigError(_shown(path), shown, expected, place=place)

    def _place(self, path: KeyPath) -> str | None:
        """Where the key is written; where it is absent: the table that it belongs in."""
        for length in range(len(path), 0, -1):
            if (elsewhere := self._elsewhere.get(path[:length])) is not None:
                return elsewhere
        if self._path is None:
            return None
        for length in range(len(path), 0, -1):
            if (line := line_of(self._text, path[:length])) is not None:
                return f"{self._path}:{line}"
        return str(self._path)

    def _path_of(self, key: str) -> KeyPath:
        """The path of a dotted key, whose names may have dots of their own; [0] is of a list."""
        path: list[str | int] = []
        tree: Any = self._tree
        rest = key
        while rest:
            if (found := _ELEMENT.match(rest)) is not None:
                place = int(found[1])
                path.append(place)
                tree = tree[place] if isinstance(tree, list) and place < len(tree) else None
                rest = rest[found.end() :]
                continue
            names = [name for name in tree if _begins(rest, name)] if isinstance(tree, dict) else []
            name = max(names, key=len, default=_FIRST.split(rest, 1)[0])
            path.append(name)
            tree = tree.get(name) if isinstance(tree, dict) else None
            rest = rest[len(name) :].removeprefix(".")
        return tuple(path)

    # --- merging ------------------------------------------------------------------------------

    def _put(self, path: tuple[str, ...], value: Any, source: str) -> None:
        tree = self._tree
        for depth, parent in enumerate(path[:-1]):
            tree = tree.setdefault(parent, {})
            if not isinstance(tree, dict):
                key = path[: depth + 1]
                raise ConfigError(
                    _shown(key), type(tree).__name__, "a table", place=self._place(key)
                )
        last = path[-1]
        known = tree.get(last)
        if isinstance(known, dict | None) and isinstance(value, dict):
            tree[last] = (known or {}) | value
            self._elsewhere |= {(*path, name): source for name in value}
        else:
            tree[last] = value
            self._elsewhere[path] = source


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError("--config", str(path), f"a readable file ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigError("--config", str(path), "a TOML file in UTF-8") from None


def _parse(text: str, path: Path | None) -> dict[str, Any]:
    if path is not None and path.suffix == ".json":
        return _parse_json(text, path)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        line = re.search(r"at line (\d+)", message)
        number = int(line[1]) if line else text.count("\n") + 1  # "at end of document"
        raise ConfigError(
            "--config", str(path), f"valid TOML ({message})", place=f"{path}:{number}"
        ) from None


def _parse_json(text: str, path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{path}:{error.lineno}"
        raise ConfigError("--config", str(path), f"valid JSON ({error.msg})", place=place) from None
    except RecursionError:
        raise ConfigError("--config", str(path), "JSON of fewer levels") from None
    if not isinstance(tree, dict):
        raise ConfigError("--config", str(path), "a JSON object")
    return tree


def _sections(root: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    """Sections whose keys the environment can set: those that are one struct."""
    return {
        field.encode_name: field.type
        for field in msgspec.structs.fields(root)
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
    }


def _from_text(variable: str, text: str, kind: Any) -> Any:
    """A value out of its text: lists are separated by commas."""
    value: Any = text
    if getattr(kind, "__origin__", None) is tuple:
        value = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return msgspec.to_builtins(msgspec.convert(value, kind, strict=False))
    except msgspec.ValidationError as error:
        message = str(error).partition(" - at `$")[0]
        raise ConfigError(variable, text, expected_of(message, kind)) from None


def _begins(key: str, name: str) -> bool:
    return key == name or key.startswith((f"{name}.", f"{name}["))


def _shown(path: KeyPath) -> str:
    """The key as people write it: tenants.a.budgets[0].unit."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
