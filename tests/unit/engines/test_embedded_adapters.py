"""A change of the embedded engine's adapters leaves no file open, however it ends."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import cast

import pytest

from mileage.core.adapter_loader import AdapterFile
from mileage.engines.embedded import adapters as under_test
from mileage.engines.embedded.adapters import EmbeddedAdapters
from mileage.engines.embedded.engine import EmbeddedEngine
from mileage.engines.embedded.open_adapter import OpenAdapter


async def moved() -> None:
    raise AssertionError("nothing has moved")


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError, MemoryError])
def test_what_was_opened_before_a_check_breaks_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    made: list[OpenAdapter] = []

    def opened(path: Path) -> OpenAdapter:
        made.append(OpenAdapter(path))
        return made[-1]

    def check(path: Path, header: object) -> None:
        if path.name == "second":
            raise error

    monkeypatch.setattr(under_test, "OpenAdapter", opened)
    monkeypatch.setattr(under_test, "check_adapter", check)
    monkeypatch.setattr(under_test, "check_model", lambda path: None)
    files = [AdapterFile(name, str(tmp_path / name)) for name in ("first", "second")]
    for file in files:
        Path(file.path).touch()

    async def story() -> None:
        adapters = EmbeddedAdapters(
            cast("EmbeddedEngine", None),
            tmp_path,
            always_on=0,
            slots=2,
            drain_s=1.0,
            moved=moved,
        )
        with pytest.raises(error):
            await adapters.change(files, ())
        assert len(made) == 1
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(made[0].descriptor)

    asyncio.run(story())
