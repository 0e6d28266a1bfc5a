"""ModelDesk: several replicas of one model, and what interrupts a sleep."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mileage.core.events import Loadable, LoadFailed
from tests.support.model_site import NEVER, PretendedLoader, site

# --- several replicas of one model ---------------------------------------------------------------


def two_of_one(**fields: Any) -> tuple[PretendedLoader, PretendedLoader]:
    return PretendedLoader("a", model="m", **fields), PretendedLoader("b", model="m")


def test_one_that_is_disabled_is_not_loaded_and_the_other_is() -> None:
    async def play() -> None:
        a, b = two_of_one()
        async with site(NEVER, a, b) as s:
            s.enable("a", False)
            assert Loadable("a", ()) in s.told
            s.desk.wanted("m")
            await s.until(lambda: s.state("b") == "loaded", "the other one is loaded")
            assert (a.loads, b.loads) == (0, 1)

    asyncio.run(play())


def test_one_that_is_disabled_while_it_is_loaded_leaves_the_work_to_the_other() -> None:
    async def play() -> None:
        a, b = two_of_one(loaded=True)
        async with site(NEVER, a, b) as s:
            s.enable("a", False)
            s.desk.wanted("m")
            await s.until(lambda: s.state("b") == "loaded", "the other one is loaded")

    asyncio.run(play())


def test_one_that_is_loaded_and_down_has_the_other_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mileage.gateway.model_desk._UP_S", 0.2)

    async def play() -> None:
        a, b = two_of_one()
        async with site(NEVER, a, b) as s:
            s.down.add("a")
            s.desk.wanted("m")
            s.waiting["m"] = 3
            await s.until(lambda: s.state("b") == "loaded", "the other one is loaded")
            assert (a.loads, b.loads) == (1, 1)

    asyncio.run(play())


def test_one_that_cannot_be_loaded_has_the_other_tried_before_it_is_told() -> None:
    async def play() -> None:
        a, b = two_of_one(failures=9)
        async with site(NEVER, a, b) as s:
            s.desk.wanted("m")
            await s.until(lambda: s.state("b") == "loaded", "the other one is loaded")
            assert not any(isinstance(event, LoadFailed) for event in s.told)

    asyncio.run(play())


# --- what interrupts a sleep ---------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True], ids=["and stays so", "and is enabled again"])
def test_one_that_is_disabled_while_it_is_unloaded_sleeps_all_the_same(again: bool) -> None:
    async def play() -> None:
        a = PretendedLoader("a", loaded=True)
        async with site(NEVER, a) as s:
            s.report()
            s.desk.sleep("a")
            s.enable("a", False)
            if again:
                s.enable("a", True)
            await s.until(lambda: s.state("a") == "asleep", "it sleeps")
            assert not a.is_loaded
            s.enable("a", True)
            assert s.told[-2] == Loadable("a", ("a",))
            s.desk.wanted("a")
            await s.until(lambda: s.state("a") == "loaded", "it is back")

    asyncio.run(play())


@pytest.mark.parametrize(
    ("sleeps", "breaks", "state"),
    [
        pytest.param(False, False, "loaded", id="it is loaded as before"),
        pytest.param(True, False, "asleep", id="it sleeps all the same"),
        pytest.param(True, True, "asleep", id="it says nothing, so a request will look again"),
    ],
)
def test_after_a_failed_unload_it_is_what_it_says(sleeps: bool, breaks: bool, state: str) -> None:
    async def play() -> None:
        a = PretendedLoader("a", loaded=True)
        async with site(NEVER, a) as s:
            a.unload_breaks, a.sleeps_all_the_same, a.look_breaks = True, sleeps, breaks
            s.report()
            s.desk.sleep("a")
            await s.until(lambda: s.state("a") != "unloading", "it is known what it is")
            assert s.state("a") == state
            assert ("a" in s.watched) == (state == "loaded")
            s.desk.wanted("a")
            await s.until(lambda: s.state("a") == "loaded", "it is there for who wants it")

    asyncio.run(play())
