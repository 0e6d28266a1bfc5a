"""GatewayNames: which requests of an engine are those of the gateway beside whose ledger it is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mileage.core.request_name import read_request_name

__all__ = ["GatewayNames"]

_TAG_FILE: Final = "gateway"
_TAG_EVERY: Final = 10
"""Looks of a channel between two looks at the gateway's tag: 5 s."""


class GatewayNames:
    """Reads the gateway's tag beside the records, again and again: it may come later."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _TAG_FILE
        self._tag: str | None = None
        self._looks = 0
        self._read_tag()

    def look(self) -> None:
        """Called with each look of a channel."""
        self._looks += 1
        if self._looks % _TAG_EVERY == 0:
            self._read_tag()

    def id_of(self, name: str) -> int | None:
        """The gateway's id of a request; None for one that did not come through it."""
        named = read_request_name(name)
        if named is not None and self._tag in (None, named.tag):
            return named.request_id
        return None

    def _read_tag(self) -> None:
        """Whose requests it can name. Before the gateway was there: anybody's that has a name."""
        try:
            self._tag = self._path.read_text(encoding="ascii", errors="replace").strip() or None
        except OSError:
            self._tag = None
