"""ModelDesk with replicas that only pretend to load: when it does what, and in which order."""

from __future__ import annotations

import asyncio

import pytest

from mileage.core.errors import MileageError
from mileage.core.events import Loadable, LoadFailed, ReplicaDown
from mileage.policy.residency.idle_config import IdleConfig, ModelIdleConfig
from tests.support.model_site import NEVER, PretendedLoader, site


def test_many_that_ask_at_once_have_it_loaded_once() -> None:
    async def play() -> None:
        a = PretendedLoader("a")
        async with site(NEVER, a) as s:
            assert s.told == [Loadable("a", ("a",)), ReplicaDown("a", "asleep: not needed yet")]
            for _ in range(5):
                s.desk.wanted("a")
            await s.until(lambda: s.state("a") == "loaded", "it is loaded")
            assert (a.loads, s.watched, s.told[-1]) == (1, {"a"}, Loadable("a", ()))

    asyncio.run(play())


def test_it_is_unloaded_when_idle_and_only_when_all_workers_have_left_it() -> None:
    async def play() -> None:
        a = PretendedLoader("a", loaded=True)
        config = IdleConfig(policy="fixed", fixed_s=0.2, resident_min_s=0.0)
        async with site(config, a) as s:
            s.in_flight["a"] = 1
            s.report()
            await asyncio.sleep(1.0)  # longer than it would stay idle
            assert (s.state("a"), a.is_loaded) == ("loaded", True)
            s.in_flight["a"] = 0
            await s.until(lambda: s.state("a") == "unloading", "its sleep begins")
            s.in_flight["a"] = 1  # sent before that worker heard of it
            s.report()
            await asyncio.sleep(0.5)
            assert a.is_loaded
            s.in_flight["a"] = 0
            await s.until(lambda: s.state("a") == "asleep", "it sleeps")
            assert not a.is_loaded

    asyncio.run(play())


def test_who_asks_for_it_before_it_is_gone_keeps_it() -> None:
    async def play() -> None:
        a = PretendedLoader("a", loaded=True)
        async with site(NEVER, a) as s:
            s.report()
            s.desk.sleep("a")  # no report: it waits for the worker's word
            s.desk.wanted("a")
            await s.until(lambda: s.state("a") == "loaded", "it stays", reports=False)
            assert (a.is_loaded, a.loads, s.watched) == (True, 0, {"a"})

    asyncio.run(play())


def test_a_model_in_use_is_not_put_to_sleep() -> None:
    async def play() -> None:
        async with site(NEVER, PretendedLoader("a", loaded=True)) as s:
            s.in_flight["a"] = 2
            s.report()
            with pytest.raises(MileageError):
                s.desk.sleep("a")
            with pytest.raises(KeyError):
                s.desk.sleep("nonsense")

    asyncio.run(play())


def test_a_load_is_tried_three_times_and_then_given_up_for_a_while() -> None:
    async def play() -> None:
        a, b = PretendedLoader("a", failures=2), PretendedLoader("b", failures=9)
        async with site(NEVER, a, b) as s:
            s.desk.wanted("a")
            s.desk.wanted("b")
            await s.until(lambda: s.state("a") == "loaded", "the third attempt is good")
            await s.until(lambda: s.state("b") == "asleep", "it is given up")
            failed = LoadFailed("b", "b: was killed", 600.0)
            assert (a.loads, b.loads, failed in s.told) == (3, 3, True)
            s.desk.wanted("b")
            assert isinstance(s.told[-1], LoadFailed)
            assert b.loads == 3

    asyncio.run(play())


def test_idle_models_make_room_and_busy_ones_do_not() -> None:
    async def play() -> None:
        a, b, c = (PretendedLoader(name, loaded=name != "c") for name in "abc")
        config = IdleConfig(policy="never", resident_min_s=0.0, memory_max_bytes=250)
        async with site(config, a, b, c) as s:
            s.in_flight["a"] = 1
            s.desk.wanted("c")
            await s.until(lambda: s.state("c") == "loaded", "there is room")
            assert [loader.is_loaded for loader in (a, b, c)] == [True, False, True]

    asyncio.run(play())


def test_two_that_need_the_same_room_have_it_one_after_the_other() -> None:
    async def play() -> None:
        a, b = PretendedLoader("a"), PretendedLoader("b")
        config = IdleConfig(policy="never", resident_min_s=1.0, memory_max_bytes=150)
        async with site(config, a, b) as s:
            s.desk.wanted("a")
            s.desk.wanted("b")
            await s.until(lambda: a.loads == 1, "the first to ask has the room")
            await s.until(lambda: s.state("a") == "loaded", "it is loaded")
            assert (s.state("b"), b.loads) == ("loading", 0)
            await s.until(lambda: s.state("b") == "loaded", "the other one follows")
            assert [loader.is_loaded for loader in (a, b)] == [False, True]

    asyncio.run(play())


def test_a_model_that_can_never_fit_is_refused_at_once() -> None:
    async def play() -> None:
        async with site(IdleConfig(memory_max_bytes=50), PretendedLoader("a")) as s:
            s.desk.wanted("a")
            await s.until(lambda: any(isinstance(e, LoadFailed) for e in s.told), "it is told")

    asyncio.run(play())


def test_hours_in_which_it_is_kept_warm_load_it_and_keep_it() -> None:
    async def play() -> None:
        always = ModelIdleConfig(keep_warm=("00:00-24:00",))
        config = IdleConfig(policy="fixed", fixed_s=0.0, resident_min_s=0.0, models={"a": always})
        a, b = PretendedLoader("a"), PretendedLoader("b", loaded=True)
        async with site(config, a, b) as s:
            await s.until(lambda: s.state("a") == "loaded", "it is loaded ahead")
            await s.until(lambda: s.state("b") == "asleep", "the other one sleeps")
            assert a.is_loaded

    asyncio.run(play())


def test_one_that_died_sleeps_until_it_is_wanted() -> None:
    async def play() -> None:
        a = PretendedLoader("a", loaded=True)
        async with site(NEVER, a) as s:
            assert s.desk.died("a", "was killed by SIGKILL")
            await s.until(lambda: s.state("a") == "asleep", "it is known")
            s.desk.wanted("a")
            await s.until(lambda: s.state("a") == "loaded", "it is back")
            assert not s.desk.died("other", "")

    asyncio.run(play())


def test_what_is_being_loaded_is_given_up_at_the_end() -> None:
    async def play() -> None:
        a = PretendedLoader("a")
        a.may_load.clear()
        async with site(NEVER, a) as s:
            s.desk.wanted("a")
            await s.until(lambda: a.loads == 1, "it is being loaded")
        assert not a.is_loaded

    asyncio.run(play())
