"""ModelDesk with replicas that only pretend to load, and one worker that reports.

async with site(NEVER, PretendedLoader("a")) as s:
    s.desk.wanted("a")
    await s.until(lambda: s.state("a") == "loaded", "it is loaded")
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from mileage.core.errors import EngineError
from mileage.core.events import Event, ReplicaDown
from mileage.core.model_loader import ModelLook
from mileage.gateway.messages import ReplicaStatus, Report
from mileage.gateway.model_desk import ModelDesk
from mileage.policy.residency.idle_config import IdleConfig

__all__ = ["NEVER", "PretendedLoader", "Site", "site"]

WAIT_S = 60.0
NEVER = IdleConfig(policy="never", resident_min_s=0.0, retry_s=600.0, retry_max_s=600.0)


class PretendedLoader:
    """Loads as soon as it may, unless it has failures left."""

    def __init__(
        self, name: str, *, model: str | None = None, loaded: bool = False, failures: int = 0
    ) -> None:
        self.name, self.is_loaded, self.failures = name, loaded, failures
        self.model = model or name
        self.unload_breaks = self.look_breaks = False
        self.sleeps_all_the_same = False
        """Where `unload` raises."""
        self.may_load = asyncio.Event()
        self.may_load.set()
        self.loads = 0

    async def look(self) -> ModelLook:
        if self.look_breaks:
            raise EngineError(self.name, "does not answer")
        return ModelLook(self.is_loaded, (self.model,))

    async def load(self) -> None:
        self.loads += 1
        await self.may_load.wait()
        if self.failures:
            self.failures -= 1
            raise EngineError(self.name, "was killed")
        self.is_loaded = True

    async def unload(self) -> None:
        if self.unload_breaks:
            self.is_loaded = not self.sleeps_all_the_same
            raise EngineError(self.name, "was cut off")
        self.is_loaded = False

    def memory_bytes(self) -> int | None:
        return 100 if self.is_loaded else None

    def needs_bytes(self) -> int | None:
        return 100


class Site:
    """A desk, its replicas, and one worker that does as it is told and reports so."""

    def __init__(self, config: IdleConfig, *loaders: PretendedLoader) -> None:
        self.told: list[Event] = []
        self.watched: set[str] = set()
        self.reasons: dict[str, str | None] = {}
        self.in_flight: dict[str, int] = {}
        self.waiting: dict[str, int] = {}
        self.loaders = loaders
        self.disabled: set[str] = set()
        self.down: set[str] = set()
        """Replicas that are never found to be up."""
        self.desk = ModelDesk(config, dt.UTC, tell=self.tell, watcher=self, live=lambda: (1,))

    def tell(self, event: Event) -> None:
        self.told.append(event)
        if isinstance(event, ReplicaDown):
            self.reasons[event.replica] = event.reason

    def is_enabled(self, name: str) -> bool:
        return name not in self.disabled

    def watch_again(self, name: str) -> None:
        self.watched.add(name)
        if name not in self.down:
            self.reasons[name] = None
            model = next(each.model for each in self.loaders if each.name == name)
            self.desk.up(name, (model,))

    def enable(self, name: str, enabled: bool) -> None:
        """As Replicas does."""
        if enabled:
            self.disabled.discard(name)
        else:
            self.disabled.add(name)
            self.tell(ReplicaDown(name, "disabled by the operator"))
        self.desk.enable(name, enabled)

    async def unwatch(self, name: str) -> None:
        self.watched.discard(name)

    def report(self) -> None:
        rows = [
            ReplicaStatus(
                name=each.name,
                state="down" if self.reasons.get(each.name) else "up",
                models=(each.model,),
                in_flight=self.in_flight.get(each.name, 0),
                reason=self.reasons.get(each.name),
            )
            for each in self.loaders
        ]
        self.desk.report(
            Report(
                pid=1,
                at_s=time.monotonic(),
                connections=0,
                in_flight=0,
                draining=False,
                ledger_ok=True,
                families=[],
                replicas=rows,
                waiting=self.waiting,
            )
        )

    def state(self, name: str) -> str:
        return next(each.state for each in self.desk.statuses() if each.replica == name)

    async def until(
        self, condition: Callable[[], bool], what: str, *, reports: bool = True
    ) -> None:
        """`reports` False: the worker says nothing meanwhile."""
        deadline_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline_s, what
            if reports:
                self.report()
            await asyncio.sleep(0.01)


@asynccontextmanager
async def site(config: IdleConfig, *loaders: PretendedLoader) -> AsyncIterator[Site]:
    made = Site(config, *loaders)
    for loader in loaders:
        await made.desk.add(loader.name, loader, load=False)
    task = asyncio.create_task(made.desk.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await made.desk.stop()
