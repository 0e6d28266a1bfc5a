"""A facts document from a file or standard input."""

from __future__ import annotations

import codecs
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from mileage.core.errors import ConfigError
from mileage.doctor.facts import decode_facts

__all__ = ["decoded_facts", "read_facts"]

_BYTES_MAX: Final = 64 * 1024 * 1024
_STDIN: Final = "-"


def read_facts(path: Path) -> dict[str, Any]:
    """The document, checked name by name.

    Raises:
        ConfigError: the file cannot be read, is no JSON, or holds what the vocabulary does not.
    """
    return decoded_facts(_bytes(path), key="--facts", path=path)


def decoded_facts(data: bytes, *, key: str, path: Path) -> dict[str, Any]:
    """The document that is written in `data`; a byte order mark before it is passed over.

    Raises ConfigError, of `key`: it is no JSON, or holds what the vocabulary does not.
    """
    try:
        document = msgspec.json.decode(data.removeprefix(codecs.BOM_UTF8))
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(key, str(path), f"JSON ({error})") from None
    decode_facts(document, place=str(path))
    assert isinstance(document, dict)
    return document


def _bytes(path: Path) -> bytes:
    try:
        if str(path) == _STDIN:
            data = sys.stdin.buffer.read(_BYTES_MAX + 1)
        else:
            with path.open("rb") as file:
                data = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError("--facts", str(path), f"a file ({error.strerror})") from None
    if len(data) > _BYTES_MAX:
        raise ConfigError("--facts", str(path), f"at most {_BYTES_MAX >> 20} MiB")
    return data
