"""Kubernetes objects as they are written: any part may be missing or of another kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

__all__ = [
    "KubeObject",
    "annotations_of",
    "at",
    "group_of",
    "kind_of",
    "labels",
    "name_of",
    "objects_in",
    "owners",
    "rows",
    "table",
    "word",
]

KubeObject: TypeAlias = Mapping[Any, Any]
"""A mapping out of YAML or JSON; nothing about it is checked."""

OBJECTS_MAX: Final = 100_000
_NESTED_MAX: Final = 8


def at(value: object, *path: str) -> object:
    """What stands at a path of keys; None where there is nothing."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def table(value: object, *path: str) -> KubeObject:
    """The mapping at a path; an empty one where there is none."""
    found = at(value, *path)
    return found if isinstance(found, Mapping) else {}


def rows(value: object, *path: str) -> list[KubeObject]:
    """The mappings of the list at a path; none where there is no list."""
    found = at(value, *path)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def word(value: object, *path: str) -> str | None:
    """The text at a path, numbers as they are written; None for what is none."""
    found = at(value, *path)
    if isinstance(found, str):
        return found.strip() or None
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, int):
        return str(found) if abs(found) < 10**30 else None
    return repr(found) if isinstance(found, float) else None


def kind_of(item: object) -> str:
    """`Deployment`; empty where an object does not say what it is."""
    return word(item, "kind") or ""


def group_of(item: object) -> str:
    """The group of its API: `apps` of `apps/v1`, empty for the core."""
    return (word(item, "apiVersion") or "").rpartition("/")[0]


def name_of(item: object) -> str | None:
    """Its name, or the begin of it where the server makes the rest."""
    return word(item, "metadata", "name") or word(item, "metadata", "generateName")


def labels(item: object) -> KubeObject:
    """Of the object itself."""
    return table(item, "metadata", "labels")


def annotations_of(item: object) -> KubeObject:
    """Of the object itself."""
    return table(item, "metadata", "annotations")


def owners(item: object) -> list[tuple[str, str]]:
    """Kind and name of what made it."""
    found = [(kind_of(row), word(row, "name")) for row in rows(item, "metadata", "ownerReferences")]
    return [(kind, name) for kind, name in found if name is not None]


def objects_in(documents: object) -> list[KubeObject]:
    """All objects of documents, those of a `List` one by one; what is no mapping is left out."""
    found: list[KubeObject] = []
    for item in _flat(documents, 0):
        found.append(item)
        if len(found) >= OBJECTS_MAX:
            break
    return found


def _flat(value: object, depth: int) -> Iterator[KubeObject]:
    if isinstance(value, list | tuple):
        if depth < _NESTED_MAX:
            for item in value:
                yield from _flat(item, depth + 1)
    elif isinstance(value, Mapping):
        if kind_of(value).endswith("List") and isinstance(value.get("items"), list):
            yield from _flat(value["items"], depth + 1)
        else:
            yield value
