"""AdapterDesk with a loader of the test's: what workers are told, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from mileage.core.adapter_loader import AdapterFile
from mileage.core.errors import EngineError
from mileage.core.events import Event, Loadable, LoadFailed, ReplicaUp
from mileage.core.replica import Adapter
from mileage.gateway.adapter_desk import AdapterDesk
from mileage.policy.residency.adapters import AdapterConfig, LoraConfig

WAIT_S = 30.0


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
        self.desk = AdapterDesk(
            deliver=self._told,
            told_anew=lambda replica: self.up(),
            look_again=lambda replica: self.up(),
            locate=lambda replica, adapter: adapter.path,
        )
        catalogue = [AdapterConfig(name=name, path=f"/{name}", base="m") for name in names]
        config = LoraConfig(prefetch=False, residence_ratio=0.0)
        self.desk.configure(config, catalogue, {"r": self})

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
        adapters = tuple(Adapter(name, name, "m") for name in self.held)
        self._told(self.desk.up(ReplicaUp("r", ("m", *self.held), adapters)))

    def _told(self, event: Event) -> None:
        self.told.append(event)
        self.new.set()

    async def until(self, event: Event) -> None:
        async with asyncio.timeout(WAIT_S):
            while event not in self.told:
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


def test_what_workers_wait_for_is_loaded_and_told() -> None:
    async def story() -> None:
        site = Site("a", "b")
        task = await running(site)
        assert site.told[:2] == [Loadable("r", ("a", "b")), up()]
        site.desk.wanted("a")
        await site.until(up("a"))
        assert site.changes == [(["/a"], [])]
        await end(task)

    asyncio.run(story())


def test_workers_hear_that_one_goes_before_it_does() -> None:
    async def story() -> None:
        site = Site("a", "b", slots=1)
        task = await running(site)
        site.desk.wanted("a")
        await site.until(up("a"))
        site.told.clear()
        site.desk.reported(1, {"b": 5}, {"b": 5})
        await site.until(up("b"))
        assert site.changes[1:] == [(["/b"], ["a"])]
        assert up() in site.told_before[-1]
        await end(task)

    asyncio.run(story())


def test_a_failure_is_told_with_its_reason_and_what_was_to_make_room_stays() -> None:
    async def story() -> None:
        site = Site("a", "b", slots=1)
        task = await running(site)
        site.desk.wanted("a")
        await site.until(up("a"))
        site.refuses["b"] = "rank 64 is above 16"
        site.desk.reported(1, {"b": 5}, {"b": 5})
        await site.until(LoadFailed("b", "rank 64 is above 16", 5.0))
        assert site.held == ["a"]
        assert up("a") in site.told[-3:]
        states = site.desk.states()
        assert [each.error for each in states.adapters] == [None, "rank 64 is above 16"]
        assert states.adapters[0].resident == ["r"]
        await end(task)

    asyncio.run(story())


def test_a_file_that_cannot_be_located_fails_alone_with_its_own_reason() -> None:
    def locate(replica: str, adapter: AdapterConfig) -> str:
        if adapter.name == "a":
            raise RuntimeError("Could not determine home directory.")
        return adapter.path

    async def story() -> None:
        site = Site("a", "b")
        site.desk._locate = locate
        task = await running(site)
        site.desk.reported(1, {"a": 1, "b": 1}, {"a": 1, "b": 1})
        await site.until(LoadFailed("a", "Could not determine home directory.", 5.0))
        await site.until(up("b"))
        await end(task)

    asyncio.run(story())


def test_an_engine_that_breaks_fails_the_load_and_the_desk_goes_on() -> None:
    async def story() -> None:
        site = Site("a", "b")
        site.breaks = True
        task = await running(site)
        site.desk.wanted("a")
        await site.until(LoadFailed("a", "r: is down", 5.0))
        site.breaks = False
        site.desk.wanted("b")
        await site.until(up("b"))
        await end(task)

    asyncio.run(story())


def test_what_is_no_more_by_configuration_is_hidden_at_once_and_unloaded() -> None:
    async def story() -> None:
        site = Site("a", "b")
        task = await running(site)
        site.desk.wanted("a")
        await site.until(up("a"))
        site.breaks = True
        moved = AdapterConfig(name="a", path="/elsewhere", base="m")
        site.desk.configure(LoraConfig(prefetch=False, retry_s=0.01), [moved], {"r": site})
        site.told.clear()
        site.up()
        assert site.told[-1] == up(), "nobody is sent to what is not a any more"
        async with asyncio.timeout(WAIT_S):
            while len(site.changes) < 3:  # it cannot be unloaded yet, and stays hidden
                site.new.clear()
                await site.new.wait()
        assert up("a") not in site.told
        site.breaks = False
        site.desk.wanted("a")
        await site.until(up("a"))
        assert site.changes[-2:] == [([], ["a"]), (["/elsewhere"], [])]
        await end(task)

    asyncio.run(story())


def test_what_a_reload_outdates_while_it_is_loaded_is_never_used() -> None:
    async def story() -> None:
        site = Site("a")
        site.gate = asyncio.Event()
        task = await running(site)
        site.desk.wanted("a")
        async with asyncio.timeout(WAIT_S):
            while not site.changes:  # noqa: ASYNC110 -- the loader says nothing else
                await asyncio.sleep(0)
        moved = AdapterConfig(name="a", path="/a2", base="m")
        config = LoraConfig(prefetch=False, residence_ratio=0.0)
        site.desk.configure(config, [moved], {"r": site})
        site.up()  # a poll of its health while it is being loaded
        site.gate.set()
        async with asyncio.timeout(WAIT_S):
            while len(site.changes) < 2:
                site.new.clear()
                await site.new.wait()
        assert up("a") not in site.told
        site.desk.wanted("a")
        await site.until(up("a"))
        assert site.changes == [(["/a"], []), ([], ["a"]), (["/a2"], [])]
        await end(task)

    asyncio.run(story())


def test_a_replica_that_loads_no_more_is_told_so() -> None:
    async def story() -> None:
        site = Site("a")
        site.up()
        site.desk.configure(LoraConfig(), [AdapterConfig(name="a", path="/a", base="m")], {})
        assert site.told[-1] == Loadable("r", ())
        site.desk.wanted("a")
        assert isinstance(site.told[-1], LoadFailed)

    asyncio.run(story())


def test_a_model_that_no_replica_can_load_is_refused_at_once() -> None:
    async def story() -> None:
        site = Site("a")
        site.desk.wanted("a")
        assert isinstance(site.told[-1], LoadFailed)
        assert "no replica that is up serves m" in site.told[-1].reason
        site.desk.wanted("m")
        assert len(site.told) == 1, "m is no adapter"

    asyncio.run(story())


def test_metrics_count_loads_failures_and_evictions() -> None:
    async def story() -> None:
        site = Site("a", "b", slots=1)
        task = await running(site)
        site.desk.wanted("a")
        await site.until(up("a"))
        site.desk.reported(1, {"b": 5}, {"b": 5})
        await site.until(up("b"))
        site.desk.worker_gone(1)
        site.desk.metrics.take(site.desk.states())
        numbers = {each.name: each.numbers for each in site.desk.metrics.snapshot()}
        assert numbers["mileage_adapter_loads_total"] == {("r", "demand"): 2}
        assert numbers["mileage_adapter_evictions_total"] == {("r", "room"): 1}
        assert numbers["mileage_adapters_resident"] == {("r",): 1}
        await end(task)

    asyncio.run(story())
