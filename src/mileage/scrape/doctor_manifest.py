"""Kubernetes objects in files, for `mileage doctor --manifest`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from mileage.core.errors import ConfigError
from mileage.doctor.collect.k8s_object import objects_in
from mileage.scrape.yaml_documents import yaml_documents

__all__ = ["read_manifest"]

BYTES_MAX: Final = 64 * 1024 * 1024
_KEY: Final = "--manifest"


def read_manifest(path: Path) -> list[Any]:
    """The documents of a file of YAML or JSON; of stdin where the path is `-`.

    Raises:
        ConfigError: it cannot be read, is larger than 64 MiB, or one of its documents is neither
            YAML nor JSON (the error says which one, from 1), or none of them is an object.
    """
    data = _bytes(path)
    if len(data) > BYTES_MAX:
        raise ConfigError(_KEY, str(path), f"at most {BYTES_MAX >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data[: error.start].count(b"\n---") + 1
        place = f"{path}, document {number}"
        raise ConfigError(_KEY, str(path), "UTF-8", place=place) from None
    documents = yaml_documents(text, place=str(path))
    if not objects_in(documents):
        place = f"{path}, document 1"
        raise ConfigError(_KEY, str(path), "objects of Kubernetes", place=place)
    return documents


def _bytes(path: Path) -> bytes:
    try:
        if str(path) == "-":
            return sys.stdin.buffer.read(BYTES_MAX + 1)
        with path.open("rb") as file:
            return file.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(_KEY, str(path), f"a file ({reason})") from None
