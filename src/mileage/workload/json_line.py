"""decode_line(): one line of JSON as a struct, with errors that name the file, line and field."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from mileage.core.errors import TraceError

__all__ = ["decode_line"]

T = TypeVar("T")


def decode_line(decoder: msgspec.json.Decoder[T], text: bytes, path: str, number: int) -> T:
    """The decoded line. Raises TraceError for what is no JSON, or not of the decoder's type."""
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(path, number, str(error)) from None
