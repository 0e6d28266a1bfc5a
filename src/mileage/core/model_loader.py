"""ModelLoader: what can bring a replica's models into memory, and out of it again."""

from __future__ import annotations

from typing import NamedTuple, Protocol

__all__ = ["ModelLoader", "ModelLook"]


class ModelLook(NamedTuple):
    """Whether a replica has its models in memory now, and which they are."""

    loaded: bool
    models: tuple[str, ...]


class ModelLoader(Protocol):
    """Loads and unloads one replica. Its calls are never made two at a time, but for `stop`ped
    ones; each raises EngineError with a reason for people."""

    async def look(self) -> ModelLook:
        """What it is now: it may have been changed behind our back."""
        ...

    async def load(self) -> None:
        """Returns when it serves. Nothing is left of one that fails."""
        ...

    async def unload(self) -> None:
        """Returns when its memory is free. No request runs there, and none comes."""
        ...

    def memory_bytes(self) -> int | None:
        """What it takes of the memory that models share, while it is loaded; None: none of it, or
        not known."""
        ...

    def needs_bytes(self) -> int | None:
        """What it is expected to take when it is loaded; None as above."""
        ...
