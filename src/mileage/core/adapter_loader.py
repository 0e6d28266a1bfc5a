"""AdapterLoader: what loads LoRA adapters into one replica, for those that decide about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

__all__ = ["AdapterFile", "AdapterLoader"]


class AdapterFile(msgspec.Struct, frozen=True):
    """An adapter by the name that clients use, and where its engine finds it."""

    name: str
    path: str


class AdapterLoader(Protocol):
    """Loads into, and unloads from, one replica; one change at a time."""

    @property
    def slots(self) -> int:
        """Adapters that the replica holds at once."""
        ...

    async def change(self, load: Sequence[AdapterFile], unload: Sequence[str]) -> Mapping[str, str]:
        """Unload, then load, and see whether they are there. By name of those that could not be
        loaded: why, for people. Raises EngineError where nothing could be done at all."""
        ...
