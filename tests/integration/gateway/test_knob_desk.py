"""The desk that has engines keep the workers' limits: whom it hears, and when it gives back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from mileage.control.config import GovernorMode
from mileage.control.governor_state import GovernorState
from mileage.core.replica import ReplicaView
from mileage.core.slo import SloConfig
from mileage.gateway.knob_desk import Controlled, KnobDesk
from mileage.gateway.messages import GovernorReport, ReplicaStatus, Report
from mileage.policy.control_fault import ControlFault
from mileage.policy.engine_knobs import ControlDocument
from mileage.wire.fetch import FetchError
from tests.support.knob_site import URL, KnobSite, knob_site

PATIENCE_S, LOOK_S, LOOKS_A_REPORT = 60.0, 0.01, 100
GIVE_BACK = {"knobs": {"active_max": None}, "lease_s": 0.1}


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[KnobSite]:
    with knob_site(monkeypatch) as found:
        yield found


def replica(name: str, limit: float | None, state: str = "up") -> ReplicaStatus:
    return ReplicaStatus(name=name, state=state, models=("m",), in_flight=0, limit=limit)


class World:
    """A desk with one engine, and workers that report."""

    def __init__(self, site: KnobSite, pids: tuple[int, ...]) -> None:
        self.site, self.pids = site, list(pids)
        self.desk = KnobDesk(lambda: self.pids)
        self._fresh: dict[int, Report] = {}
        """What each worker reported last, as if just now."""

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
        replicas: list[ReplicaStatus] | None = None,
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
        report = Report(
            pid=pid,
            at_s=time.monotonic() - age_s,
            connections=0,
            in_flight=0,
            draining=False,
            ledger_ok=True,
            families=[],
            replicas=replicas or [replica("gpu", limit, state)],
            governor=GovernorReport(state=governor, slo=SloConfig(), failure=failure),
        )
        self.desk.report(report)
        self._fresh.pop(pid, None)
        if not age_s:
            self._fresh[pid] = report

    def _repeat(self) -> None:
        """Workers report again and again: one report would be too old on a slow machine."""
        for pid, report in self._fresh.items():
            if pid in self.pids:
                self.desk.report(msgspec.structs.replace(report, at_s=time.monotonic()))

    async def until(self, condition: Callable[[], bool]) -> None:
        for look in range(round(PATIENCE_S / LOOK_S)):
            if condition():
                return
            if look % LOOKS_A_REPORT == LOOKS_A_REPORT - 1:
                self._repeat()
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
        assert site.asked[-1] == GIVE_BACK

    run(story)


class Unanswered:
    """The engine takes what it is asked for, and the answer never comes; looks are answered."""

    def __init__(self, site: KnobSite) -> None:
        self._control = site.control()

    async def ask(
        self, body: Mapping[str, Any] | None, timeout_s: float
    ) -> ControlDocument | ControlFault:
        answer = await self._control.ask(body, timeout_s)
        if body is not None and body != GIVE_BACK:
            await asyncio.Event().wait()
        return answer


def test_a_stop_gives_back_what_is_still_unanswered(site: KnobSite) -> None:
    async def story() -> None:
        async with world(site) as made:
            await made.desk.configure({"gpu": Controlled(Unanswered(site), "b", 3600.0, False)})
            made.report(1, 8.0)
            await made.active(8)
            assert made.desk.statuses()[0].state == "idle", "it has not said that it holds it"
        assert (site.asked[-1], site.scheduler.max_num_active_reqs) == (GIVE_BACK, 64)

    run(story)


class Counted(list[ReplicaStatus]):
    """A worker's replicas; how often they were gone through."""

    rounds = 0

    def __iter__(self) -> Iterator[ReplicaStatus]:
        self.rounds += 1
        return super().__iter__()


def test_a_report_is_gone_through_once_however_many_engines_there_are(site: KnobSite) -> None:
    async def story() -> None:
        made = World(site, (1,))
        try:
            await made.desk.configure(
                {f"gpu{index}": made.engine()["gpu"] for index in range(20)} | made.engine()
            )
            replicas = Counted([replica("gpu", 8.0), replica("gpu7", 9.0)])
            made.report(1, None, replicas=replicas)
            limits = {each.replica: each.limit for each in made.desk.statuses()}
            assert (limits["gpu"], limits["gpu7"], limits["gpu8"]) == (8, 9, None)
            assert replicas.rounds == 1
        finally:
            await made.desk.stop()

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
            assert site.asked[before] == GIVE_BACK
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


def test_a_decision_that_fails_costs_no_engine_its_control(
    site: KnobSite, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mileage.gateway.knob_desk._BROKEN_S", 0.1)

    async def story() -> None:
        async with world(site) as made:
            made.report(1, 8.0)
            await made.active(8)
            live, made.desk._live = made.desk._live, lambda: 1 // 0  # type: ignore[assignment,return-value]
            made.desk.up("gpu")
            await made.until(lambda: "its control could not be asked" in caplog.text)
            made.desk._live = live
            made.report(1, 4.0)
            await made.active(4)

    run(story)
