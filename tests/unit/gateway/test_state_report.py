"""A worker's report tells what its governor holds, limits and decided, and when it has failed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from mileage.control.config import ControlConfig, GovernorConfig, GovernorMode
from mileage.control.controller import Controller
from mileage.core.events import Arrived, Finished, OthersSeen, ReplicaUp, ShareChanged
from mileage.core.request import Request
from mileage.core.slo import SloConfig
from mileage.core.timeline import RequestTimeline
from mileage.gateway.driver import Driver
from mileage.gateway.messages import GovernorReport, Report
from mileage.gateway.metrics import GatewayMetrics
from mileage.gateway.state_report import state_report
from mileage.policy.limits.static import StaticConfig
from tests.support.controllers import request

SLO = SloConfig(ttft_s=2.0)


class NoLog:
    """A request log that keeps nothing."""

    def encode_intent(self, request: Request, arrived_at_utc_ns: int) -> bytes:
        return b""

    def encode_finish(self, timeline: RequestTimeline) -> bytes:
        return b""

    def write(self, records: Sequence[bytes]) -> bool:
        return True

    def close(self) -> None: ...


def driver(mode: GovernorMode = "act", **governor: object) -> Driver:
    config = ControlConfig(
        governor=GovernorConfig(
            mode=mode,
            policy="static",
            static=StaticConfig(limit=2),
            **governor,  # type: ignore[arg-type]
        ),
        slo=SLO,
    )
    controller = Controller(("a", "b"), config=config, random=Random(1))
    controller.handle(ReplicaUp("a", ("llama",)), 0.0)
    controller.handle(ReplicaUp("a", ("llama",)), 1.0)
    return Driver(controller, [], NoLog(), GatewayMetrics(SLO), on_ledger_failure="open")


def arrive(made: Driver, count: int) -> None:
    for number in range(count):
        made.controller.handle(Arrived(request(number, arrived_s=1.0)), 1.0)


def report(made: Driver) -> Report:
    sent = state_report(made, connections=3, draining=False, config_version=7)
    # What travels is what is told.
    return msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Report)


def governor(found: Report) -> GovernorReport:
    assert found.governor is not None
    return found.governor


def value(found: Report, name: str) -> dict[tuple[str, ...], float]:
    return next(family.numbers for family in found.families if family.name == name)


def test_what_is_held_and_limited_is_told() -> None:
    made = driver()
    arrive(made, 5)
    found = report(made)
    a, b = found.replicas
    assert (a.limit, a.in_flight, b.limit, b.limit_reason) == (2.0, 2, None, None)
    assert a.limit_reason == "static: 2"
    state = governor(found).state
    assert state is not None
    assert (state.held, state.waiting["a"], state.held_by_tenant) == (3, 3, {"acme": 3})
    assert governor(found).slo == SLO
    assert value(found, "mileage_queue_requests") == {(): 3}
    assert value(found, "mileage_requests_queued_total") == {(): 3}
    assert value(found, "mileage_replica_queue_requests") == {("a",): 3}
    assert value(found, "mileage_replica_limit") == {("a",): 2}
    assert value(found, "mileage_governor_mode") == {("act",): 1}
    assert value(found, "mileage_governor_failed") == {(): 0}


def test_a_worker_tells_its_part_of_a_limit() -> None:
    made = driver()
    made.controller.handle(ShareChanged(0.25), 1.0)
    assert report(made).replicas[0].limit == 0.5


def test_what_others_have_at_a_replica_leaves_less_of_its_time() -> None:
    costs = []
    for others in (0, 3):
        made = driver("off")
        arrive(made, 1)
        weight = report(made).replicas[0].gpu_weight
        made.controller.handle(OthersSeen((("a", others * weight), ("gone", 1))), 1.0)
        made.controller.handle(Finished(0, 10, 0, 10), 5.0)
        spend = made.controller.spend_of(0)
        assert spend is not None
        costs.append(spend.gpu_ns)
        assert report(made).replicas[0].gpu_weight == 0
    assert costs == [4_000_000_000, 1_000_000_000]


def test_a_mode_that_only_observes_tells_what_it_would_do() -> None:
    made = driver("observe")
    arrive(made, 5)
    found = report(made)
    assert found.replicas[0].limit == 2
    assert found.replicas[0].in_flight == 5
    assert value(found, "mileage_governor_would_hold_total") == {(): 3}
    assert value(found, "mileage_governor_mode") == {("observe",): 1}


def test_without_a_governor_there_is_no_limit() -> None:
    found = report(driver("off"))
    assert found.replicas[0].limit is None
    assert value(found, "mileage_replica_limit") == {}


def test_a_governor_that_failed_says_so_and_limits_nothing() -> None:
    made = driver()
    made.controller.failure = "ValueError: it broke"
    found = report(made)
    assert governor(found).failure == "ValueError: it broke"
    assert found.replicas[0].limit is None
    assert value(found, "mileage_governor_failed") == {(): 1}


def test_a_state_that_cannot_be_told_hides_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    made = driver()

    def broken(_: object) -> None:
        raise KeyError("queue")

    monkeypatch.setattr(type(made.controller.governor), "state", broken)
    found = report(made)
    assert governor(found).state is None
    assert governor(found).failure == "its state cannot be told: KeyError: 'queue'"
    assert [replica.state for replica in found.replicas] == ["up", "down"]
