"""The JSON document of a command that was asked for one and ended with an error in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import typer

from mileage.core.errors import (
    ConfigError,
    EngineError,
    FileError,
    LedgerError,
    MileageError,
    TraceError,
)

__all__ = ["UsageError", "error_document", "wants_json"]

UsageError: Final[type[Exception]] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
"""What the command line's parser raises; releases of typer have it from different packages."""
_KINDS: Final[Sequence[tuple[type[MileageError], str]]] = (
    (ConfigError, "config"),
    (TraceError, "trace"),
    (EngineError, "engine"),
    (FileError, "file"),
    (LedgerError, "ledger"),
)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for a JSON document; behind `--` there are no options."""
    arguments = list(arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:end]


def error_document(error: Exception, exit_code: int) -> str:
    """One line: {"error": {"kind": ..., "message": ..., "exit_code": ...}}, with what is known of
    its place: `key`, `expected` and `place`, or `path` and `line`, or `engine`."""
    found: dict[str, Any] = {
        "kind": next((name for kind, name in _KINDS if isinstance(error, kind)), "failure"),
        "message": str(error),
        "exit_code": exit_code,
    }
    match error:
        case ConfigError():
            found |= {"key": error.key, "expected": error.expected, "place": error.place}
        case TraceError():
            found |= {"path": error.path, "line": error.line or None}
        case FileError() | LedgerError():
            found |= {"path": error.path}
        case EngineError():
            found |= {"engine": error.engine}
        case MileageError():
            pass
        case _:
            found |= {"kind": "usage", "message": _of_parser(error)}
    return msgspec.json.encode({"error": found}).decode()


def _of_parser(error: Exception) -> str:
    """The parser's message, without the help that it may come with."""
    told = getattr(error, "format_message", lambda: str(error))()
    return str(told).strip()
