"""EmbeddedAdapters: loads adapters into the embedded engine, by a second child that takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path

import msgspec

from mileage.core.adapter_loader import AdapterFile
from mileage.core.errors import EngineError, ModelFileError
from mileage.engines.embedded.engine import EmbeddedEngine
from mileage.engines.embedded.model_files import check_adapter, check_model
from mileage.engines.embedded.open_adapter import OpenAdapter
from mileage.engines.embedded.replaced_child import ReplacedChild

__all__ = ["EmbeddedAdapters"]

_GRACE_S = 5.0


_encode = msgspec.json.encode


class _Scale(msgspec.Struct):
    """What llama.cpp is told of an adapter; of those that are not named the scale is 0."""

    id: int
    scale: float = 1.0


class EmbeddedAdapters:
    """llama.cpp loads adapters only when it starts: then a request chooses among them by number.

    So a change starts a child with the adapters that are wanted beside the one that serves; what
    comes next goes to the new one (`moved` tells so), and the old one ends when it has answered all
    that it has, after `drain_s` at the latest. Nothing is cut, and nothing waits but requests for
    the adapters that are loaded. It costs a start, the memory of a second KV cache until the old
    child ends, and the prompts that were cached.
    """

    def __init__(
        self,
        engine: EmbeddedEngine,
        model_path: Path,
        *,
        always_on: int,
        slots: int,
        drain_s: float,
        moved: Callable[[], Coroutine[None, None, None]],
    ) -> None:
        self._engine, self._model_path = engine, model_path
        self._always_on, self._slots, self._drain_s = always_on, slots, drain_s
        self._moved = moved
        self._tasks: set[asyncio.Task[None]] = set()
        self.held: dict[str, OpenAdapter] = {}
        """By name: the adapters of the child that serves, in the order of their numbers."""

    @property
    def slots(self) -> int:
        """Adapters that it holds at once."""
        return self._slots

    def choices(self, base: str) -> dict[str, str]:
        """By model: the value of the field `lora` of its requests; that of the base model too."""
        if not self.held:
            return {}
        first = [_Scale(number) for number in range(self._always_on)]
        # Never an empty list: with that llama.cpp gives the base model's requests what an adapter
        # has left in its cache; told of any adapter it compares, and reads the prompt anew.
        chosen = {base: first or [_Scale(self._always_on, 0.0)]}
        for number, name in enumerate(self.held, self._always_on):
            chosen[name] = [*first, _Scale(number)]
        return {model: _encode(scales).decode() for model, scales in chosen.items()}

    async def change(self, load: Sequence[AdapterFile], unload: Sequence[str]) -> Mapping[str, str]:
        """See AdapterLoader."""
        errors: dict[str, str] = {}
        added: dict[str, OpenAdapter] = {}
        header = await asyncio.to_thread(check_model, self._model_path)
        try:
            for adapter in load:
                path = Path(adapter.path)
                try:
                    await asyncio.to_thread(check_adapter, path, header)
                    added[adapter.name] = OpenAdapter(path)
                except ModelFileError as error:
                    errors[adapter.name] = str(error)
            kept = {name: each for name, each in self.held.items() if name not in unload}
            if not added and (load or len(kept) == len(self.held)):
                return errors  # nothing comes, so nothing needs to make room
            try:
                await self._swap(kept | added)
            except EngineError as error:
                if not added:
                    raise
                if len(added) == 1:
                    ((name, file),) = added.items()
                    return {**errors, name: file.named(error.message)}
                good = [adapter for adapter in load if adapter.name in added]
                return {**errors, **await self._one_by_one(good, unload)}
        finally:
            for each in added.values():
                if each not in self.held.values():
                    each.close()
        return errors

    async def _one_by_one(
        self, load: Sequence[AdapterFile], unload: Sequence[str]
    ) -> dict[str, str]:
        """One of them does not load: find out which."""
        errors: dict[str, str] = {}
        for adapter in load:
            errors |= await self.change((adapter,), unload)
        return errors

    async def _swap(self, wanted: dict[str, OpenAdapter]) -> None:
        old = await self._engine.swap(tuple(wanted.values()))
        before, self.held = self.held, wanted
        for name, file in before.items():
            if wanted.get(name) is not file:
                file.close()
        # Whoever gives up waiting now: the engine has moved, and everybody is to know.
        moved = self._task(self._moved())
        self._task(self._end(old, moved))
        await asyncio.shield(moved)

    async def _end(self, old: ReplacedChild, moved: asyncio.Task[None]) -> None:
        """End the child that was replaced, once nothing new is sent to it and it has answered."""
        try:
            await asyncio.wait([moved])
        finally:
            await old.end(drain_s=self._drain_s, grace_s=_GRACE_S)

    def _task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stop(self) -> None:
        """End what still drains at once."""
        await asyncio.sleep(0)  # a task that is cancelled before it begins ends no child
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for file in self.held.values():
            file.close()
        self.held = {}
