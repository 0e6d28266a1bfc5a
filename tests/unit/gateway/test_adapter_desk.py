"""AdapterDesk with a loader of the test's: what workers are told, and in which order."""

from __future__ import annotations

import asyncio

from mileage.core.events import Loadable, LoadFailed
from mileage.policy.residency.adapters import AdapterConfig, LoraConfig
from tests.support.adapter_site import WAIT_S, Site, end, running, up


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
