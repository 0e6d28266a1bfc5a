"""EmbeddedLoader: one model of `[[models]]`: loaded is a child process that serves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mileage.core.model_loader import ModelLook
from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.engine import EmbeddedEngine
from mileage.engines.embedded.model_files import check_model, kv_bytes, split_parts

__all__ = ["EmbeddedLoader"]

_GRACE_S = 5.0


class EmbeddedLoader:
    """Starts and ends the child of an engine that was prepared.

    `resident_bytes` tells how much memory a process has; None where it cannot.
    """

    def __init__(
        self,
        engine: EmbeddedEngine,
        config: EmbeddedConfig,
        model_path: Path,
        resident_bytes: Callable[[int], int | None],
    ) -> None:
        self._engine, self._resident_bytes = engine, resident_bytes
        header = check_model(model_path)  # first: it names the part that is not there
        parts = map(model_path.with_name, split_parts(model_path.name))
        weights_bytes = sum(part.stat().st_size for part in parts)
        self._needs_bytes = weights_bytes + (kv_bytes(config, header) or 0)

    async def look(self) -> ModelLook:
        """By its child."""
        return ModelLook(self._engine.pid is not None, (self._engine.served_name,))

    async def load(self) -> None:
        """Start the child. Raises EngineError."""
        await self._engine.load()

    async def unload(self) -> None:
        """End the child; its address stays ours."""
        await self._engine.unload(_GRACE_S)

    def memory_bytes(self) -> int | None:
        """What the child has in memory."""
        pid = self._engine.pid
        if pid is None:
            return None
        resident_bytes = self._resident_bytes(pid)
        if resident_bytes is not None:
            self._needs_bytes = max(self._needs_bytes, resident_bytes)
        return resident_bytes

    def needs_bytes(self) -> int | None:
        """Its weights and its KV cache, or what it was seen to have."""
        return self._needs_bytes
