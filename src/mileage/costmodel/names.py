"""NameIndex: finds an entry by any of its names, and tells the nearest where there is none."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Generic, TypeVar

from mileage.core.errors import ConfigError

__all__ = ["NameIndex"]

T = TypeVar("T")

_NEAREST = 4
_CUTOFF = 0.4


class NameIndex(Generic[T]):
    """Entries by each of their names; case, spaces and punctuation make no difference."""

    def __init__(self, key: str, entries: Iterable[tuple[T, Iterable[str]]]) -> None:
        """`key`: what ConfigError names. ValueError where two entries have the same name."""
        self._key = key
        self._entries: dict[str, T] = {}
        self._shown: dict[str, str] = {}
        for entry, names in entries:
            shown = ""
            for name in names:
                shown = shown or name
                bare = _bare(name)
                if self._entries.setdefault(bare, entry) is not entry:
                    raise ValueError(f"two entries are named {name!r}")
                self._shown[bare] = shown

    def find(self, name: str) -> T:
        """The entry of that name; ConfigError that tells the nearest names where there is none."""
        wanted = _bare(name)
        entry = self._entries.get(wanted)
        if entry is not None:
            return entry
        matches = difflib.get_close_matches(wanted, self._shown, n=3 * _NEAREST, cutoff=_CUTOFF)
        nearest = list(dict.fromkeys(self._shown[match] for match in matches))[:_NEAREST]
        hint = f" (nearest: {', '.join(nearest)})" if nearest else ""
        raise ConfigError(self._key, name, f"a known name{hint}")


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())
