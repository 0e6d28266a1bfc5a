"""decode_line(): one line of JSON as a struct, with errors that name the file, line and field."""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

from mileage.core.errors import TraceError

__all__ = ["LINES", "decode_line", "fault_text", "not_json"]

T = TypeVar("T")

LINES: Final = "one whole JSON object on each line"
_PLACE: Final = re.compile(r"(.*) - at `\$\.?(.*)`", re.DOTALL)
_KIND: Final = re.compile(r"Expected `(.+)`, got `(.+)`")
_FIELD: Final = re.compile(r"Object (missing required|contains unknown) field `(.*)`", re.DOTALL)
_SHOWN_CHARACTERS: Final = 40
_KINDS: Final = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


def decode_line(
    decoder: msgspec.json.Decoder[T],
    text: bytes,
    path: str,
    number: int,
    *,
    expected: str = LINES,
) -> T:
    """The decoded line. Raises TraceError for what is no JSON, or not of the decoder's type."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise TraceError(path, number, fault_text(error)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(path, number, not_json(text, error, expected)) from None


def not_json(text: bytes, error: Exception, expected: str = LINES) -> str:
    """What is wrong with a line that cannot be decoded at all, and what was expected."""
    if isinstance(error, RecursionError):
        found = "is nested too deeply"
    elif text.lstrip()[:1] == b"[":
        found = "begins a JSON array"
    elif text.rstrip().endswith(b","):
        found = "ends with a comma"
    else:
        found = f"is no JSON: {str(error).removeprefix('JSON is malformed: ')}"
    return f"{found}: expected {expected}"


def fault_text(error: msgspec.ValidationError) -> str:
    """A field that is not as its type, told as all other faults are: its name, got, expected."""
    message = str(error)
    place = _PLACE.fullmatch(message)
    name = ""
    if place is not None:
        message, name = place[1], place[2]
    if (kind := _KIND.fullmatch(message)) is not None:
        message = f"got {_named(kind[2])}, expected {_named(kind[1])}"
    elif (field := _FIELD.fullmatch(message)) is not None:
        missing = field[1].startswith("missing")
        shown = (
            field[2] if len(field[2]) <= _SHOWN_CHARACTERS else f"{field[2][:_SHOWN_CHARACTERS]}..."
        )
        message = f"{shown} is missing" if missing else f"{shown}: no request has such a field"
    return f"{name}: {message}" if name else message


def _named(kinds: str) -> str:
    """`int | null` as people say it."""
    return " or ".join(_KINDS.get(kind, kind) for kind in kinds.split(" | "))
