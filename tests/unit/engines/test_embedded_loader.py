"""A model of `[[models]]`: the memory that it is taken to need before it was ever loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from mileage.core.errors import ModelFileError
from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.model_loader import EmbeddedLoader
from tests.support.gguf_builder import gguf

HEADER: dict[str, object] = {"general.architecture": "llama"}
PARTS = ("m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf")


def loader_of(path: Path) -> EmbeddedLoader:
    return EmbeddedLoader(cast("Any", None), EmbeddedConfig(), path, lambda pid: None)


def test_a_model_in_parts_needs_the_memory_of_all_of_them(tmp_path: Path) -> None:
    first = gguf({**HEADER, "split.count": 3})
    (tmp_path / PARTS[0]).write_bytes(first)
    (tmp_path / PARTS[1]).write_bytes(gguf(HEADER) + bytes(5000))
    (tmp_path / PARTS[2]).write_bytes(gguf(HEADER) + bytes(300))
    whole = sum((tmp_path / part).stat().st_size for part in PARTS)
    assert loader_of(tmp_path / PARTS[0]).needs_bytes() == whole


def test_a_part_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / PARTS[0]).write_bytes(gguf({**HEADER, "split.count": 3}))
    with pytest.raises(ModelFileError, match="00002-of-00003"):
        loader_of(tmp_path / PARTS[0])
