"""The desk that has engines keep the workers' limits: whom it hears, and when it gives back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mileage.control.config import GovernorMode
from mileage.control.governor_state import GovernorState
from mileage.core.replica import ReplicaView
from mileage.core.slo import SloConfig
from mileage.gateway.knob_desk import Controlled, KnobDesk
from mileage.gateway.messages import GovernorReport, ReplicaStatus, Report
from mileage.wire.fetch import FetchError
from tests.support.knob_site import URL, KnobSite, knob_site

PATIENCE_S, LOOK_S = 60.0, 0.01


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[KnobSite]:
    with knob_site(monkeypatch) as found:
        yield found


class World:
    """A desk with one engine, and workers that report."""

    def __init__(self, site: KnobSite, pids: tuple[int, ...]) -> None:
        self.site, self.pids = site, list(pids)
        self.desk = KnobDesk(lambda: self.pids)

    def engine(self, access: str = "a") -> dict[str, Controlled]:
        return {"gpu": Controlled(self.site.control(), access, 30.0, False)}

    def report(
        self,
        pid: int,
        limit: float | None,
        *,
        mode: GovernorMode = "act",
        state: str = "up",
        failure: str | None = None,
        age_s: float = 0.0,
    ) -> None:
        governor = GovernorState(
            mode=mode,
            policy="model",
            held=0,
            held_by_tenant={},
            held_total=0,
            refused_total={},
            would_hold_total=0,
            would_refuse_total=0,
            waiting={},
            decisions=[],
        )
        status = ReplicaStatus(name="gpu", state=state, models=("m",), in_flight=0, limit=limit)
        self.desk.report(
            Report(
                pid=pid,
                at_s=time.monotonic() - age_s,
                connections=0,
                in_flight=0,
                draining=False,
                ledger_ok=True,
                families=[],
                replicas=[status],
                governor=GovernorReport(state=governor, slo=SloConfig(), failure=failure),
            )
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(round(PATIENCE_S / LOOK_S)):
            if condition():
                return
            await asyncio.sleep(LOOK_S)
        raise AssertionError(f"not within {PATIENCE_S:g} s: {self.desk.statuses()}")

    async def active(self, value: int) -> None:
        """Wait until the engine has this cap."""
        await self.until(lambda: self.site.scheduler.max_num_active_reqs == value)

    async def looked(self) -> None:
        """Wait until the engine was asked for the first time."""
        await self.until(lambda: self.desk.statuses()[0].version is not None)


@asynccontextmanager
async def world(site: KnobSite, *pids: int) -> AsyncIterator[World]:
    made = World(site, pids or (1,))
    await made.desk.configure(made.engine())
    try:
        yield made
    finally:
        await made.desk.stop()


def run(story: Callable[[], Any]) -> None:
    asyncio.run(story())


def test_all_workers_together_are_one_limit(site: KnobSite) -> None:
    async def story() -> None:
        async with world(site, 1, 2) as made:
            await made.looked()
            made.report(1, 6.5)
            assert made.desk.statuses()[0].limit is None, "the other one has not told yet"
            made.report(2, 6.5)
            await made.active(14)
            made.report(2, None, state="down")
            assert made.desk.statuses()[0].limit == 14, "while one of them does not use it: stays"
            made.pids = [1]
            made.desk.gone(2)
            made.report(1, 20.0)
            await made.active(20)

    run(story)


@pytest.mark.parametrize(
    "then",
    [
        pytest.param({"limit": 8.0, "mode": "observe"}, id="it only observes"),
        pytest.param({"limit": None, "mode": "off"}, id="it is off"),
        pytest.param({"limit": 8.0, "failure": "ValueError"}, id="it has failed"),
        pytest.param({"limit": 8.0, "state": "down"}, id="nobody uses the engine"),
        pytest.param({"limit": 8.0, "age_s": 60.0}, id="its report is old"),
    ],
)
def test_without_a_decision_the_start_values_are_back(site: KnobSite, then: dict[str, Any]) -> None:
    async def story() -> None:
        async with world(site) as made:
            made.report(1, 8.0)
            await made.active(8)
            made.report(1, **then)
            await made.active(64)

    run(story)


def test_a_stop_gives_back_and_asks_nothing_more(site: KnobSite) -> None:
    async def story() -> None:
        async with world(site) as made:
            made.report(1, 8.0)
            await made.active(8)
        assert site.scheduler.max_num_active_reqs == 64
        assert site.asked[-1] == {"knobs": {"active_max": None}, "lease_s": None}

    run(story)


def test_what_cannot_be_given_back_is_told(
    site: KnobSite, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with world(site) as made:
            made.report(1, 8.0)
            await made.active(8)
            site.fault = FetchError(URL, "connect", "refused")

    with caplog.at_level(logging.WARNING):
        run(story)
    assert "could not be given back (refused): they end with their lease of 30 s" in caplog.text


def test_an_engine_that_is_asked_otherwise_is_given_back_first(site: KnobSite) -> None:
    async def story() -> None:
        async with world(site) as made:
            made.report(1, 8.0)
            await made.active(8)
            before = len(site.asked)
            await made.desk.configure(made.engine())
            assert len(site.asked) == before, "the same: it stays as it is"
            await made.desk.configure(made.engine("another token"))
            assert site.asked[before] == {"knobs": {"active_max": None}, "lease_s": None}
            await made.active(8)
            await made.desk.configure({})
            assert (made.desk.statuses(), site.scheduler.max_num_active_reqs) == ([], 64)

    run(story)


def test_an_engine_that_comes_up_is_asked_at_once(
    site: KnobSite, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with world(site) as made:
            made.report(1, 8.0)
            await made.active(8)
            site.start()
            made.desk.up("gpu")
            made.desk.up("another")
            await made.active(8)
            assert [event.kind for event in made.desk.events()] == ["restarted"]

    with caplog.at_level(logging.WARNING):
        run(story)
    assert "engine gpu: it was started anew" in caplog.text


def test_what_the_engine_runs_at_once_is_added_where_nothing_else_tells(site: KnobSite) -> None:
    async def story() -> None:
        view = ReplicaView(replica="gpu", observed_s=0.0, running=3)
        async with world(site) as made:
            assert made.desk.complete(view) == view
            await made.looked()
            assert made.desk.complete(view).running_max == 64
            told = ReplicaView(replica="gpu", observed_s=0.0, running_max=7)
            other = ReplicaView(replica="other", observed_s=0.0)
            assert (made.desk.complete(told), made.desk.complete(other)) == (told, other)

    run(story)
