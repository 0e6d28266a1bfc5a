"""Changes of a configuration: which keys differ between two of its documents."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["change_text", "changed_keys"]

_NAMED: Final = 6


def changed_keys(before: str | bytes, after: str | bytes) -> list[str]:
    """Dotted keys whose values differ, sorted; of a list the key of the list. Nothing where one of
    them is no JSON object."""
    try:
        one, other = msgspec.json.decode(before), msgspec.json.decode(after)
    except msgspec.DecodeError:
        return []
    return sorted(_differing(one, other, ""))


def change_text(keys: list[str]) -> str:
    """The keys for people, six at most."""
    if not keys:
        return "the configuration changed"
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return f"{', '.join(keys[:_NAMED])}{more} changed"


def _differing(one: Any, other: Any, path: str) -> set[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        found: set[str] = set()
        for key in one.keys() | other.keys():
            below = f"{path}.{key}" if path else str(key)
            found |= _differing(one.get(key), other.get(key), below)
        return found
    return {path} if one != other and path else set()
