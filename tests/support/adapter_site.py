"""AdapterDesk with a loader of the test's, and what workers are told by it.

site = Site("a", "b")
task = await running(site)
site.desk.wanted("a")
await site.until(up("a"))
await end(task)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from mileage.core.adapter_loader import AdapterFile
from mileage.core.errors import EngineError
from mileage.core.events import Event, ReplicaUp
from mileage.core.replica import Adapter
from mileage.gateway.adapter_desk import AdapterDesk
from mileage.policy.residency.adapters import AdapterConfig, LoraConfig

__all__ = ["CONFIG", "WAIT_S", "Site", "adapter", "end", "running", "up"]

WAIT_S = 30.0
CONFIG = LoraConfig(prefetch=False, residence_ratio=0.0, retry_s=0.01)


class Site:
    """A replica that holds what its loader was told; the desk before it."""

    def __init__(self, *names: str, slots: int = 2) -> None:
        self.slots = slots
        self.held: list[str] = []
        self.refuses: dict[str, str] = {}
        self.breaks = False
        self.gate: asyncio.Event | None = None
        """Changes wait for it; then the engine is seen to be up before they return."""
        self.told: list[Event] = []
        self.changes: list[tuple[list[str], list[str]]] = []
        self.told_before: list[list[Event]] = []
        """What workers had been told when each of them began."""
        self.new = asyncio.Event()
        self.all_hear = True
        """Workers take in what they are told; some do not."""
        self.here: set[str] | None = None
        """Paths of files that are here; None: of all. Others come when `fetch` returns."""
        self.fetch: Callable[[AdapterConfig], object] = lambda adapter: None
        self.paths: dict[str, str] = {}
        """Where the engine says that it has read them; others it does not tell of."""
        self.desk = AdapterDesk(
            deliver=self._told,
            heard=self._heard,
            told_anew=lambda replica: self.up(),
            look_again=lambda replica: self.up(),
            locate=self._locate,
            fetch=self._fetch,
        )
        catalogue = [AdapterConfig(name=name, path=f"/{name}", base="m") for name in names]
        config = LoraConfig(prefetch=False, residence_ratio=0.0)
        self.desk.configure(config, catalogue, {"r": self})

    async def _heard(self, timeout_s: float) -> bool:
        return self.all_hear

    def _locate(self, replica: str, adapter: AdapterConfig) -> str | None:
        return adapter.path if self.here is None or adapter.path in self.here else None

    def _fetch(self, adapter: AdapterConfig) -> None:
        self.fetch(adapter)
        if self.here is not None:
            self.here.add(adapter.path)

    async def change(self, load: Sequence[AdapterFile], unload: Sequence[str]) -> Mapping[str, str]:
        self.changes.append(([each.path for each in load], list(unload)))
        self.told_before.append(list(self.told))
        if self.breaks:
            raise EngineError("r", "is down")
        errors = {each.name: self.refuses[each.name] for each in load if each.name in self.refuses}
        if not load or len(errors) < len(load):
            self.held = [name for name in self.held if name not in unload]
        if self.gate is not None:
            await self.gate.wait()
        self.held += [each.name for each in load if each.name not in errors]
        if self.gate is not None:
            self.up()
        return errors

    def up(self) -> None:
        adapters = tuple(Adapter(name, name, "m", self.paths.get(name)) for name in self.held)
        self._told(self.desk.up(ReplicaUp("r", ("m", *self.held), adapters)))

    def _told(self, event: Event) -> None:
        self.told.append(event)
        self.new.set()

    async def until(self, event: Event) -> None:
        async with asyncio.timeout(WAIT_S):
            while event not in self.told:
                self.new.clear()
                await self.new.wait()

    async def until_changes(self, count: int) -> None:
        """So many have begun."""
        async with asyncio.timeout(WAIT_S):
            while len(self.changes) < count:
                self.new.clear()
                await self.new.wait()


def up(*held: str) -> ReplicaUp:
    return ReplicaUp("r", ("m", *held), tuple(Adapter(name, name, "m") for name in held))


async def running(site: Site) -> asyncio.Task[None]:
    site.up()
    return asyncio.create_task(site.desk.run())


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def adapter(name: str, path: str | None = None, tenant: str | None = None) -> AdapterConfig:
    return AdapterConfig(name=name, path=path or f"/{name}", base="m", tenant=tenant)
