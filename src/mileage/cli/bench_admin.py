"""The admin plane of a gateway under test: its address and its token."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from mileage.cli.config import state_directory
from mileage.core.errors import ConfigError

__all__ = ["admin_token"]

_FILE: Final = "admin-token"


def admin_token(variable: str | None, file: Path | None) -> str:
    """As given, else that of this machine's gateway. Raises ConfigError where there is none."""
    if variable is not None and file is not None:
        raise ConfigError("--admin-token-file", str(file), "nothing beside --admin-token-env")
    if variable is not None:
        token = os.environ.get(variable, "").strip()
        if not token:
            expected = "the name of an environment variable that is set"
            raise ConfigError("--admin-token-env", variable, expected)
        return token
    path = file or state_directory() / _FILE
    try:
        token = path.read_text("utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        expected = f"a file with the admin token in its first line ({reason})"
        raise ConfigError("--admin-token-file", str(path), expected) from None
    if not token:
        raise ConfigError("--admin-token-file", str(path), "a token in its first line")
    return token
