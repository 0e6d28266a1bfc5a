"""The token of /mileage/control: out of the environment, or a file that it names."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["TOKEN_FILE_VARIABLE", "TOKEN_VARIABLE", "control_token"]

TOKEN_VARIABLE: Final = "MILEAGE_CONTROL_TOKEN"  # noqa: S105 -- the name of it
TOKEN_FILE_VARIABLE: Final = "MILEAGE_CONTROL_TOKEN_FILE"  # noqa: S105 -- the name of it

_LENGTH_MIN: Final = 16
_log = logging.getLogger("vllm.mileage")


def control_token(environment: Mapping[str, str]) -> bytes | None:
    """The token; None where there is none that can be used, and the log says why.

    Whoever has it changes limits of the engine: it is not the key of those who send requests.
    """
    token = environment.get(TOKEN_VARIABLE)
    place = TOKEN_VARIABLE
    if token is None and (path := environment.get(TOKEN_FILE_VARIABLE)) is not None:
        place = f"{TOKEN_FILE_VARIABLE} ({path})"
        try:
            token = Path(path).read_text("ascii")
        except (OSError, UnicodeDecodeError) as error:
            _log.warning("mileage: no /mileage/control: %s: %s", place, error)
            return None
    if token is None:
        _log.info("mileage: no /mileage/control: neither %s nor its _FILE is set", TOKEN_VARIABLE)
        return None
    token = token.strip()
    if len(token) < _LENGTH_MIN or not token.isascii() or not token.isprintable():
        expected = f"at least {_LENGTH_MIN} printable ASCII characters"
        _log.warning("mileage: no /mileage/control: %s: expected %s", place, expected)
        return None
    return token.encode("ascii")
