"""What an engine is asked so that it keeps the gateway's limit, and what its answers mean."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from mileage.core.slo import Slo
from mileage.gateway.knob_seat import KnobSeat
from mileage.gateway.knob_status import KnobEvent
from mileage.policy.control_fault import ControlFault
from mileage.wire.fetch import FetchError, FetchResponse
from tests.support.control_site import engine
from tests.support.knob_site import URL, KnobSite, knob_site

NO_SLO = Slo()
GIVE_BACK = {"knobs": {"active_max": None}, "lease_s": 0.1}


class World:
    """A seat, its engine, and one clock for both."""

    def __init__(self, site: KnobSite, *, step_budget: bool = False) -> None:
        self.site, self.events = site, list[KnobEvent]()
        self.control = site.control()
        self.seat = KnobSeat("gpu", 10.0, self.events.append, step_budget=step_budget)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    @property
    def status(self) -> Any:
        return self.seat.status(self.site.now_s)

    def decide(self, limit: int | None, slo: Slo = NO_SLO) -> None:
        self.seat.decide(limit, slo, self.site.now_s)

    def exchange(self) -> dict[str, Any] | None:
        """One request, at once; what it asked."""
        body = self.seat.body(self.site.now_s)
        answer = asyncio.run(self.control.ask(body, 1.0))
        self.seat.heard(answer, self.site.now_s)
        return body

    def wait(self, limit: int | None = None) -> dict[str, Any] | None:
        """The next request, when it is due."""
        self.site.now_s = max(self.site.now_s, self.seat.due_s)
        if limit is not None:
            self.decide(limit)
        return self.exchange()

    def settle(self, limit: int) -> None:
        """The engine has this limit."""
        self.decide(limit)
        self.exchange()
        self.wait()
        assert self.site.scheduler.max_num_active_reqs == limit


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[KnobSite]:
    with knob_site(monkeypatch) as found:
        yield found


def test_it_looks_first_and_then_asks_for_the_gateways_limit(site: KnobSite) -> None:
    world = World(site)
    world.decide(12)
    assert world.exchange() is None
    assert (world.status.state, world.seat.running_max) == ("idle", 64)
    assert world.wait() == {"knobs": {"active_max": 12}, "lease_s": 10.0}
    status = world.status
    assert (status.state, status.asked, status.applied, status.version) == ("held", 12, 12, 1)
    assert status.applied_version == 1
    assert site.scheduler.max_num_active_reqs == 12


def test_what_is_decided_meanwhile_is_merged(site: KnobSite) -> None:
    world = World(site)
    world.settle(12)
    for limit in (20, 9, 30):
        world.decide(limit)
    assert world.wait() == {"knobs": {"active_max": 30}, "lease_s": 10.0}
    assert len(site.asked) == 3


def test_a_limit_that_the_engine_has_anyway_asks_for_nothing(site: KnobSite) -> None:
    world = World(site)
    world.decide(64)
    assert (world.exchange(), world.wait(), world.wait(1024)) == (None, None, None)
    assert site.now_s == 120.0, "one look in a lease"


def test_the_lease_is_renewed_in_time(site: KnobSite) -> None:
    world = World(site)
    world.settle(12)
    for _ in range(10):
        asked = world.wait()
        assert asked is not None
        assert asked["lease_s"] == 10.0
    assert 130.0 < site.now_s < 140.0
    assert (site.scheduler.max_num_active_reqs, world.kinds) == (12, [])


def test_values_that_wait_for_a_long_step_are_looked_after(site: KnobSite) -> None:
    world = World(site)
    world.settle(12)
    site.scheduler.running.append("a long step")
    world.decide(6)
    world.wait()
    assert (world.status.asked, world.status.applied) == (6, 12)
    assert world.wait() is None
    site.scheduler.running.clear()
    assert world.wait() is None
    assert (world.status.applied, world.status.applied_version) == (6, 2)


def test_an_engine_that_was_started_anew_is_asked_again(site: KnobSite) -> None:
    world = World(site)
    world.settle(12)
    site.start()
    world.seat.hasten(site.now_s)
    world.exchange()
    assert world.kinds == ["restarted"]
    assert world.wait() == {"knobs": {"active_max": 12}, "lease_s": 10.0}
    assert site.scheduler.max_num_active_reqs == 12
    assert world.status.restarts_total == 1


def test_silence_brings_the_start_values_back_and_they_are_asked_again(site: KnobSite) -> None:
    world = World(site)
    world.settle(12)
    site.now_s += 20.0
    assert world.exchange() == {"knobs": {"active_max": 12}, "lease_s": 10.0}
    assert (world.kinds, world.status.lapses_total) == (["lapsed"], 1)


FAULTS: dict[str, FetchResponse | FetchError] = {
    "wrong_token": FetchResponse(401, (), b'{"error": {"message": "no"}}'),
    "absent": FetchResponse(404, (), b'{"detail": "Not Found"}'),
    "engine_error": FetchResponse(503, (), b'{"error": {"message": "no answer"}}'),
    "unreachable": FetchError(URL, "connect", "refused"),
    "timeout": FetchError(URL, "timeout", "no answer within 10 s"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_told_once_and_asked_again_later_and_later(site: KnobSite, kind: str) -> None:
    world = World(site)
    world.settle(12)
    site.fault = FAULTS[kind]
    pauses = []
    for _ in range(8):
        world.wait()
        pauses.append(round(world.seat.due_s - site.now_s))
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    assert world.kinds == ["fault"]
    assert (world.status.state, world.status.error_kind) == ("fault", kind)
    assert "gateway's own limit holds" in world.events[0].detail
    site.fault = None
    assert world.wait(7) is not None
    assert world.kinds == ["fault", "answers", "lapsed"]
    assert (world.status.state, site.scheduler.max_num_active_reqs) == ("held", 7)
    assert world.status.requests_total[kind] == 8


def test_nothing_decided_gives_the_start_values_back(site: KnobSite) -> None:
    world = World(site)
    world.settle(12)
    world.decide(None)
    assert world.wait() == GIVE_BACK
    assert (world.status.state, site.scheduler.max_num_active_reqs) == ("idle", 64)
    assert not world.seat.holds


def test_a_clamp_is_told(site: KnobSite) -> None:
    sizes = {"cudagraph_mode": "FULL", "cudagraph_capture_sizes": [8, 16, 32, 64]}
    site.start(compilation=sizes)
    world = World(site)
    world.settle(16)
    # Another graph than the one that it told of: what it takes is below what it was asked for.
    site.start(engine(compilation={**sizes, "cudagraph_capture_sizes": [4, 12, 64]}))
    world.wait()
    assert world.kinds == ["restarted", "clamped"]
    # The next larger graph holds all that it runs: no cap keeps its steps shorter.
    assert world.wait() == GIVE_BACK


def test_an_engine_without_the_knob_is_told_of_and_left_alone(site: KnobSite) -> None:
    site.start(without=("max_num_active_reqs",))
    world = World(site)
    world.decide(12)
    assert (world.exchange(), world.wait()) == (None, None)
    assert (world.kinds, world.status.state) == (["unable"], "unable")
    assert list(world.status.gaps) == ["active_max"]


def test_another_one_that_sets_it_is_told_of(site: KnobSite) -> None:
    world = World(site)
    world.settle(12)
    asyncio.run(site.control().ask({"knobs": {"active_max": 3}, "lease_s": None}, 1.0))
    world.wait()
    assert world.kinds == ["others"]
    assert site.scheduler.max_num_active_reqs == 12


def test_the_step_budget_follows_the_targets_and_outlives_a_lapse(site: KnobSite) -> None:
    site.start(scheduler={"requests": {}})
    world = World(site, step_budget=True)
    slo = Slo(itl_s=0.05, ttft_s=2.0)
    world.decide(12, slo)
    world.exchange()
    policy = {"budget": "model", "itl_target_s": 0.05, "ttft_target_s": 2.0}
    asked = world.wait()
    assert asked is not None
    assert asked["policy"] == policy
    assert world.status.step_budget["budget"] == "model"
    site.now_s += 20.0
    world.exchange()
    assert world.status.step_budget["budget"] == "model"
    world.decide(12, NO_SLO)
    ended = world.wait()
    assert ended is not None
    assert ended["policy"] is None
    assert world.status.step_budget is None


def test_a_step_budget_that_is_refused_does_not_keep_the_limit_away(site: KnobSite) -> None:
    world = World(site, step_budget=True)
    world.decide(12, Slo(itl_s=0.05))
    world.exchange()
    site.fault = FetchResponse(400, (), b'{"error": {"message": "policy: no"}}')
    world.wait()
    site.fault = None
    assert world.wait() == {"knobs": {"active_max": 12}, "lease_s": 10.0}
    assert world.kinds == ["fault", "answers"]
    assert site.scheduler.max_num_active_reqs == 12


def test_a_renewal_that_hangs_costs_no_lease(site: KnobSite) -> None:
    world = World(site)
    world.settle(12)
    site.now_s = world.seat.due_s
    assert world.seat.body(site.now_s) is not None
    site.now_s += world.seat.answer_max_s
    world.seat.heard(ControlFault("timeout", "no answer"), site.now_s)
    world.wait()
    assert (world.status.lapses_total, world.status.requests_total["timeout"]) == (0, 1)


@pytest.mark.parametrize(
    ("lease_s", "answer_max_s"), [(1.0, 1 / 3), (10.0, 10 / 3), (3600.0, 30.0)]
)
def test_an_answer_is_waited_for_less_than_the_lease(lease_s: float, answer_max_s: float) -> None:
    seat = KnobSeat("gpu", lease_s, lambda event: None, step_budget=False)
    assert seat.answer_max_s == pytest.approx(answer_max_s)


def test_the_lease_counts_from_when_it_was_asked_for(site: KnobSite) -> None:
    world = World(site)
    world.settle(12)
    site.now_s = sent_s = world.seat.due_s
    body = world.seat.body(sent_s)
    answer = asyncio.run(world.control.ask(body, 1.0))
    world.seat.heard(answer, sent_s + 3.0)
    assert world.seat.due_s == pytest.approx(sent_s + 10 / 3)


LOST = FetchError(URL, "timeout", "no answer within 3 s")


def test_a_request_without_an_answer_is_given_back_and_nobody_elses(site: KnobSite) -> None:
    site.start(scheduler={"requests": {}})
    world = World(site, step_budget=True)
    world.settle(12)
    site.lost = LOST
    world.decide(12, Slo(itl_s=0.05))
    world.exchange()
    assert world.seat.give_back() == GIVE_BACK
    site.lost = None
    world.decide(None)
    assert world.wait() == GIVE_BACK
    site.now_s += 1.0
    world.exchange()
    assert (world.status.step_budget, site.scheduler.max_num_active_reqs) == (None, 64)
    assert world.kinds == ["fault", "answers"], "the lost request's version was no other one's"


def test_a_first_request_counts_as_held_before_its_answer(site: KnobSite) -> None:
    world = World(site)
    world.decide(12)
    world.exchange()
    assert (world.seat.holds, world.status.state) == (False, "idle")
    site.lost = LOST
    assert world.seat.body(site.now_s) is not None
    assert (world.seat.holds, world.status.state) == (True, "idle")
    world.exchange()
    assert world.seat.holds, "it was taken, and its answer is lost"
    site.lost = None
    world.decide(None)
    assert world.wait() == GIVE_BACK
    assert (world.seat.holds, site.scheduler.max_num_active_reqs) == (False, 64)


def test_a_request_with_a_wrong_token_was_not_taken(site: KnobSite) -> None:
    world = World(site)
    world.decide(12)
    world.exchange()
    site.fault = FAULTS["wrong_token"]
    world.exchange()
    assert not world.seat.holds
