"""A directory that `mileage doctor record` has made: the facts in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from mileage.cli.doctor_facts_file import decoded_facts
from mileage.core.errors import ConfigError

__all__ = ["FACTS_FILE", "read_dump"]

FACTS_FILE: Final = "facts.json"
_BYTES_MAX: Final = 64 * 1024 * 1024


def read_dump(directory: Path) -> dict[str, Any]:
    """The facts of a directory that `record` has made.

    Raises:
        ConfigError: it is none, or what is in it is not a facts document.
    """
    path = directory / FACTS_FILE
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise ConfigError("--dump", str(path), f"at most {_BYTES_MAX >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        expected = f"a directory of `mileage doctor record` ({error.strerror}: {FACTS_FILE})"
        raise ConfigError("--dump", str(directory), expected) from None
    return decoded_facts(data, key="--dump", path=path)
