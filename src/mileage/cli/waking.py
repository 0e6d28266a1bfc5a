"""Waking: wakes engines that may sleep no more by configuration, before they are used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from mileage.core.errors import MileageError
from mileage.engines.remote import RemoteEngine
from mileage.engines.vllm_sleep import VllmLoader
from mileage.gateway.admin.fleet import ReplicaHealth

__all__ = ["Waking"]

_RETRY_S = 5.0
_log = logging.getLogger(__name__)


async def _load(engine: RemoteEngine) -> None:
    assert engine.sleep_level is not None
    await VllmLoader(engine, engine.sleep_level).load()


class Waking:
    """One task for each, which tries until it is awake: nobody else would wake it any more.

    A server that sleeps passes its health checks, so it is watched only when it is awake.
    """

    def __init__(
        self,
        wake: Callable[[RemoteEngine], Awaitable[None]] = _load,
        *,
        retry_s: float = _RETRY_S,
    ) -> None:
        self._wake, self._retry_s = wake, retry_s
        self._slept: dict[str, RemoteEngine] = {}
        """By name: as it was configured when it could sleep."""
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def begin(
        self, engine: RemoteEngine, before: RemoteEngine | None, awake: Callable[[], None]
    ) -> bool:
        """Wake it if it could sleep `before`, or was still to be woken; `awake` is called then.
        False: there is nothing to do."""
        slept = self._slept.pop(engine.name, None)
        if before is not None and before.sleep_level is not None:
            slept = before
        if slept is None or slept.url != engine.url or engine.sleep_level is not None:
            return False
        self._slept[engine.name] = slept
        task = self._tasks[engine.name] = asyncio.create_task(self._run(slept, awake))
        task.add_done_callback(partial(self._done, engine.name))
        return True

    async def leave(self, name: str) -> None:
        """Stop; where it is joined again, `begin` remembers that it sleeps."""
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def stop(self) -> None:
        """Give all up: they stay as they are."""
        for name in list(self._tasks):
            await self.leave(name)

    def health(self, engine: RemoteEngine, *, enabled: bool) -> ReplicaHealth:
        """Of one that is being woken."""
        return ReplicaHealth(
            name=engine.name,
            kind=engine.kind,
            url=engine.url,
            enabled=enabled,
            up=False,
            loading=True,
            models=engine.models,
            reason="it is woken: it has no sleep_level any more",
        )

    async def _run(self, engine: RemoteEngine, awake: Callable[[], None]) -> None:
        while True:
            try:
                await self._wake(engine)
                break
            except Exception as error:
                _log.warning(
                    "%s has no sleep_level any more and could not be woken, again in %g s: %s",
                    engine.name,
                    self._retry_s,
                    error,
                    exc_info=None if isinstance(error, MileageError) else error,
                )
            await asyncio.sleep(self._retry_s)
        self._slept.pop(engine.name, None)
        awake()

    def _done(self, name: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]
