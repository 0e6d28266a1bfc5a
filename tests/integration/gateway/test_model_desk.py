"""ModelDesk with replicas that only pretend to load: when it does what, and in which order."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from mileage.core.errors import EngineError, MileageError
from mileage.core.events import Event, Loadable, LoadFailed, ReplicaDown
from mileage.core.model_loader import ModelLook
from mileage.gateway.messages import ReplicaStatus, Report
from mileage.gateway.model_desk import ModelDesk
from mileage.policy.residency.idle_config import IdleConfig, ModelIdleConfig

WAIT_S = 60.0
NEVER = IdleConfig(policy="never", resident_min_s=0.0, retry_s=600.0, retry_max_s=600.0)


class PretendedLoader:
    """Loads as soon as it may, unless it has failures left."""

    def __init__(self, name: str, *, loaded: bool = False, failures: int = 0) -> None:
        self.name, self.is_loaded, self.failures = name, loaded, failures
        self.may_load = asyncio.Event()
        self.may_load.set()
        self.loads = 0

    async def look(self) -> ModelLook:
        return ModelLook(self.is_loaded, (self.name,))

    async def load(self) -> None:
        self.loads += 1
        await self.may_load.wait()
        if self.failures:
            self.failures -= 1
            raise EngineError(self.name, "was killed")
        self.is_loaded = True

    async def unload(self) -> None:
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
        self.desk = ModelDesk(config, dt.UTC, tell=self.tell, watcher=self, live=lambda: (1,))

    def tell(self, event: Event) -> None:
        self.told.append(event)
        if isinstance(event, ReplicaDown):
            self.reasons[event.replica] = event.reason

    def watch_again(self, name: str) -> None:
        self.watched.add(name)
        self.reasons[name] = None
        self.desk.up(name, (name,))

    async def unwatch(self, name: str) -> None:
        self.watched.discard(name)

    def report(self) -> None:
        rows = [
            ReplicaStatus(
                name=each.name,
                state="down" if self.reasons.get(each.name) else "up",
                models=(each.name,),
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

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline_s, what
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
            await asyncio.sleep(0.3)
            assert (s.state("a"), a.is_loaded, s.watched) == ("loaded", True, {"a"})

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
