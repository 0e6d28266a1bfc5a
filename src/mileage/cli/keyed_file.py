"""read_keyed(): a file of a command's own, such as a plan or a scenario, and its document."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from mileage.cli.config_document import Document
from mileage.core.errors import ConfigError

__all__ = ["read_keyed"]

_CONFIGURATION: Final = "docs/reference/configuration.md"
"""Where the reader of files points at for a key that does not exist."""

S = TypeVar("S", bound=msgspec.Struct)


def read_keyed(
    path: Path | None,
    flags: Mapping[str, Any],
    kind: type[S],
    *,
    name: str,
    tables: Mapping[str, type[msgspec.Struct]],
    page: str,
) -> tuple[Document, S]:
    """The document, and what is in it as a `kind`.

    `name`: of the argument that the path came from; `tables`: what is known of the `kind`'s own
    tables; `page`: the one that lists the keys. Raises ConfigError with the line of what is wrong,
    and with the nearest keys for one that does not exist.
    """
    try:
        document = Document(path, flags, {}, kind)
    except ConfigError as error:
        raise error.named(error.key.replace("--config", name)) from None
    try:
        return document, document.decode(kind)
    except ConfigError as error:
        expected = error.expected
        if expected.endswith(_CONFIGURATION):
            table, _, key = error.key.rpartition(".")
            expected = f"{_nearest(key, tables.get(table, kind))}; see {page}"
        raise ConfigError(error.key, error.value, expected, place=error.place) from None


def _nearest(key: str, table: type[msgspec.Struct]) -> str:
    known = table.__struct_fields__
    near = get_close_matches(key, known, n=3) or known
    return f"a key such as {', '.join(near)}"
