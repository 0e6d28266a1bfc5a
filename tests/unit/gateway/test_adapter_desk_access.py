"""AdapterDesk: who may use what through reloads and restarts; files that come late; full slots."""

from __future__ import annotations

import asyncio
import threading

import pytest

from mileage.core.errors import EngineError
from mileage.core.events import LoadFailed, ReplicaUp
from mileage.core.replica import Adapter
from mileage.policy.residency.adapters import AdapterConfig, LoraConfig
from tests.support.adapter_site import CONFIG, WAIT_S, Site, adapter, end, running, up


def test_what_will_be_anothers_is_hidden_before_workers_know_whose() -> None:
    async def story() -> None:
        site = Site("a", "b")
        task = await running(site)
        for name in ("a", "b"):
            site.desk.wanted(name)
            await site.until(up(*site.held, name))
        site.told.clear()
        catalogue = [adapter("a", "/elsewhere", tenant="t"), adapter("b", tenant="t")]
        site.desk.withhold(catalogue)
        assert site.told == [up("b")], "b is the same file, and workers know whose it is"
        site.up()
        assert site.told[-1] == up("b"), "nor by a poll of its health"
        site.desk.configure(CONFIG, catalogue, {"r": site})
        site.up()
        assert up("a", "b") not in site.told
        await end(task)

    asyncio.run(story())


def test_its_name_is_given_to_no_other_while_a_worker_has_not_heard() -> None:
    async def story() -> None:
        site = Site("a")
        task = await running(site)
        site.desk.wanted("a")
        await site.until(up("a"))
        site.all_hear = False
        site.desk.configure(CONFIG, [adapter("a", "/elsewhere")], {"r": site})
        site.desk.wanted("a")
        for _ in range(3):
            site.new.clear()
            async with asyncio.timeout(WAIT_S):
                await site.new.wait()
        assert len(site.changes) == 1
        site.all_hear = True
        await site.until_changes(3)
        assert site.changes[1:] == [([], ["a"]), (["/elsewhere"], [])]
        await end(task)

    asyncio.run(story())


def test_room_is_made_though_a_worker_hears_nothing_for_long() -> None:
    async def story() -> None:
        site = Site("a", "b", slots=1)
        site.all_hear = False
        task = await running(site)
        site.desk.wanted("a")
        await site.until(up("a"))
        site.desk.reported(1, {"b": 5}, {"b": 5})
        await site.until(up("b"))
        await end(task)

    asyncio.run(story())


def test_what_nobody_has_configured_is_nobodys(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        site = Site("a")
        site.held = ["a", "left"]
        site.up()
        assert site.told[-1] == up("a")
        assert "holds adapters that are not in [[adapters]]" in caplog.text
        site.up()
        assert caplog.text.count("left") == 1, "that is said once"
        site.desk.configure(CONFIG, [adapter("a"), adapter("left")], {"r": site})
        site.up()
        assert site.told[-1] == up("a", "left")

    asyncio.run(story())


def test_adapters_that_an_engine_was_started_with_are_part_of_its_model() -> None:
    async def story() -> None:
        site = Site("a")
        event = ReplicaUp("r", ("m",), (Adapter("m", "style", "m"),))
        assert site.desk.up(event) == event

    asyncio.run(story())


def test_an_engine_that_loads_none_keeps_its_own_and_tells_no_paths() -> None:
    async def story() -> None:
        site = Site("a")
        event = ReplicaUp("other", ("m", "own"), (Adapter("own", "own", "m", "/secret/own"),))
        assert site.desk.up(event) == ReplicaUp(
            "other", ("m", "own"), (Adapter("own", "own", "m"),)
        )

    asyncio.run(story())


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        pytest.param(None, [], id="it does not tell where it has read it"),
        pytest.param("/a/", [], id="it is the same"),
        pytest.param("/old/a", [([], ["a"]), (["/a"], [])], id="it was read from elsewhere"),
    ],
)
def test_after_a_restart_what_was_read_from_elsewhere_is_another(
    path: str | None, changes: list[tuple[list[str], list[str]]]
) -> None:
    async def story() -> None:
        site = Site("a")
        site.held = ["a"]
        site.paths = {} if path is None else {"a": path}
        task = await running(site)
        assert site.told[-1] == (up() if changes else up("a"))
        site.desk.wanted("a")
        site.paths = {}
        await site.until(up("a"))
        assert site.changes == changes
        await end(task)

    asyncio.run(story())


def test_an_engine_that_writes_a_path_otherwise_is_not_asked_again_and_again() -> None:
    async def story() -> None:
        site = Site("a")
        site.paths = {"a": "/mnt/real/a"}
        task = await running(site)
        site.desk.wanted("a")
        await site.until(up("a"))
        site.up()
        assert site.told[-1] == up("a")
        assert site.changes == [(["/a"], [])]
        await end(task)

    asyncio.run(story())


# --- files, and slots ----------------------------------------------------------------------------


def test_a_file_that_is_long_in_coming_holds_up_no_other() -> None:
    async def story() -> None:
        site = Site("slow", "b")
        site.here = {"/b"}
        may_come = threading.Event()
        site.fetch = lambda adapter: may_come.wait(WAIT_S)
        task = await running(site)
        site.desk.reported(1, {"slow": 1, "b": 1}, {"slow": 1, "b": 1})
        await site.until(up("b"))
        assert site.changes == [(["/b"], [])]
        may_come.set()
        await site.until(up("b", "slow"))
        await end(task)

    asyncio.run(story())


def test_a_file_that_does_not_come_in_time_is_refused_with_its_reason() -> None:
    async def story() -> None:
        site = Site("a")
        site.here = set()
        may_come = threading.Event()
        site.fetch = lambda adapter: may_come.wait(WAIT_S)
        config = LoraConfig(prefetch=False, load_timeout_s=0.05, retry_s=0.01)
        site.desk.configure(config, [adapter("a")], {"r": site})
        task = await running(site)
        site.desk.reported(1, {"a": 1}, {"a": 1})
        said = "a: its file has not come within 0 s; it is still being fetched"
        await site.until(LoadFailed("a", said, 1.0))
        may_come.set()
        await site.until(up("a"))
        await end(task)

    asyncio.run(story())


def test_a_file_that_cannot_be_fetched_is_refused() -> None:
    def fetch(adapter: AdapterConfig) -> None:
        raise EngineError("hub", "has no such file")

    async def story() -> None:
        site = Site("a")
        site.here, site.fetch = set(), fetch
        task = await running(site)
        site.desk.wanted("a")
        await site.until(LoadFailed("a", "hub: has no such file", 5.0))
        assert site.changes == []
        assert site.desk.states().adapters[0].error == "hub: has no such file"
        await end(task)

    asyncio.run(story())


def test_nobody_waits_for_a_slot_that_pinned_ones_keep() -> None:
    async def story() -> None:
        site = Site("a", "b", slots=1)
        catalogue = [AdapterConfig(name="a", path="/a", base="m", pinned=True), adapter("b")]
        site.desk.configure(CONFIG, catalogue, {"r": site})
        task = await running(site)
        await site.until(up("a"))
        site.desk.reported(1, {"b": 1}, {"b": 1})
        said = "all slots of the replicas that could load it are taken by pinned adapters"
        await site.until(LoadFailed("b", said, 5.0))
        site.told.clear()
        site.desk.wanted("b")
        assert site.told[-1] == LoadFailed("b", said, 5.0)
        site.desk.pin("a", False)
        await site.until(up("b"))
        await end(task)

    asyncio.run(story())


def test_clients_are_not_told_where_files_are() -> None:
    async def story() -> None:
        site = Site()
        site.desk.configure(CONFIG, [adapter("a", "/home/Jane Doe/a.gguf")], {"r": site})
        site.refuses["a"] = "/home/Jane Doe/a.gguf: does not exist"
        task = await running(site)
        site.desk.reported(1, {"a": 1}, {"a": 1})
        await site.until(LoadFailed("a", "a.gguf: does not exist", 1.0))
        assert site.desk.states().adapters[0].error == site.refuses["a"]
        await end(task)

    asyncio.run(story())


def test_what_the_engine_has_lost_is_loaded_again_for_who_was_told_so() -> None:
    async def story() -> None:
        site = Site("a")
        task = await running(site)
        site.desk.wanted("a")
        await site.until(up("a"))
        site.held.clear()  # the engine was started anew
        site.desk.wanted("a")
        await site.until_changes(2)
        assert site.changes == [(["/a"], []), (["/a"], [])]
        await end(task)

    asyncio.run(story())


def test_who_waits_for_what_is_there_is_told_so_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mileage.gateway.adapter_desk._CHECK_S", 0.0)

    async def story() -> None:
        site = Site("a")
        task = await running(site)
        site.desk.wanted("a")
        await site.until(up("a"))
        site.told.clear()
        site.desk.wanted("a")
        await site.until(up("a"))
        assert site.changes == [(["/a"], [])]
        await end(task)

    asyncio.run(story())
