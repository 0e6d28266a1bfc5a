"""The name by which a gateway is known in a database that several share: kept beside its log."""

from __future__ import annotations

import os
import re
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

from mileage.core.errors import LedgerError

__all__ = ["gateway_identity"]

_NAME: Final = "gateway.id"
_FORM: Final = re.compile(r"[0-9a-f]{32}")


def gateway_identity(directory: str | Path) -> str:
    """That of the ledger directory, made where it has none: what is left in the log after a crash
    is then stored as what the same gateway had begun. Raises LedgerError."""
    path = Path(directory) / _NAME
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = _read(path)
        if known is None:
            made = path.with_suffix(f".{os.getpid()}")
            made.write_text(f"{uuid.uuid4().hex}\n", encoding="ascii")
            made.chmod(0o600)
            with suppress(FileExistsError):  # another one was faster
                os.link(made, path)
            made.unlink()
            known = _read(path)
    except OSError as error:
        raise LedgerError(str(path), f"cannot be read or made: {error.strerror}") from error
    if known is None or not _FORM.fullmatch(known):
        raise LedgerError(str(path), "is not the name of a gateway: 32 hexadecimal digits")
    return known


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return None
