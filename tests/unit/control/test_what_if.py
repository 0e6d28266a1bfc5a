"""WhatIf: the same configuration changes nothing; another one holds, refuses and delays."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import msgspec
import pytest

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.control.controller import Controller
from mileage.control.journal import JournalHeader
from mileage.control.journal_decoder import JournalRecord
from mileage.control.snapshot import dump_state
from mileage.control.what_if import WhatIf, WhatIfResult
from mileage.core.actions import Dispatch, WakeAt
from mileage.core.events import (
    Arrived,
    Cancelled,
    ConfigChanged,
    Event,
    Failed,
    Finished,
    FirstToken,
    ReplicaUp,
    Woke,
)
from mileage.core.slo import SloConfig
from tests.support.journals import header, request

OFF = ControlConfig(governor=GovernorConfig(mode="off"))
SERVICE_S = 1.0


def narrow(limit: int, **fields: object) -> ControlConfig:
    """At most `limit` requests at each replica."""
    governor = GovernorConfig(policy="static", limit_max=limit)
    return msgspec.convert({"governor": governor, **fields}, ControlConfig)


def header_of(config: ControlConfig, state: bytes | None = None) -> JournalHeader:
    return header(
        replicas=("gpu-a",),
        lacks={},
        config=msgspec.json.encode(config).decode(),
        seed=1,
        began_s=0.0,
        state=state,
    )


class Host:
    """One replica that answers every request after a second."""

    def __init__(self, config: ControlConfig) -> None:
        self.controller = Controller(("gpu-a",), config=config, random=Random(1))
        self.agenda: list[tuple[float, int, Event]] = []
        self.records: list[JournalRecord] = []
        self.order = 0
        self.at(0.0, ReplicaUp("gpu-a", ("llama",)))

    def at(self, now_s: float, event: Event) -> None:
        self.order += 1
        heappush(self.agenda, (now_s, self.order, event))

    def run(self) -> list[JournalRecord]:
        while self.agenda:
            now_s, _, event = heappop(self.agenda)
            actions = tuple(self.controller.handle(event, now_s))
            self.records.append(
                JournalRecord(
                    number=len(self.records) + 1, now_s=now_s, event=event, actions=actions
                )
            )
            for action in actions:
                if isinstance(action, Dispatch):
                    self.at(now_s + SERVICE_S / 4, FirstToken(action.request_id))
                    self.at(now_s + SERVICE_S, Finished(action.request_id, 100, None, 20))
                elif isinstance(action, WakeAt):
                    self.at(action.at_s, Woke())
        return self.records


def journal(
    config: ControlConfig, arrivals: int = 20, apart_s: float = 0.01
) -> list[JournalRecord]:
    host = Host(config)
    for number in range(arrivals):
        host.at(1.0 + apart_s * number, Arrived(request(number, arrived_s=1.0 + apart_s * number)))
    return host.run()


def estimate(
    records: list[JournalRecord], config: ControlConfig, head: JournalHeader | None = None
) -> WhatIfResult:
    what_if = WhatIf(config)
    what_if.begin(head or header_of(OFF), "a.mjl", goes_on=False)
    for record in records:
        what_if.step(record)
    return what_if.result()


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(OFF, id="off"),
        pytest.param(narrow(64), id="a limit that is not reached"),
        pytest.param(narrow(2), id="a limit that holds requests"),
        pytest.param(narrow(2, slo={"ttft_s": 2.0}), id="a limit and a target that refuse some"),
    ],
)
def test_the_configuration_of_the_journal_itself_changes_nothing(config: ControlConfig) -> None:
    result = estimate(journal(config), config, header_of(config))
    assert result.assumed == 0
    recorded = msgspec.structs.asdict(result.recorded)
    estimated = msgspec.structs.asdict(result.estimated)
    for name in ("arrived", "sent", "held", "joined", "rejected", "waited"):
        assert estimated[name] == recorded[name], name
    if result.recorded.waited:
        assert result.estimated.wait_max_s == pytest.approx(result.recorded.wait_max_s, abs=0.01)


def test_a_limit_holds_requests_for_as_long_as_those_before_them_run() -> None:
    result = estimate(journal(OFF, arrivals=6, apart_s=0.0), narrow(2))
    assert result.recorded.held == 0
    # Two at a time, a second each. The journal ends before the last two would be sent.
    estimated = result.estimated
    counts = (estimated.sent, estimated.held, estimated.waited, estimated.waiting)
    assert counts == (4, 4, 2, 2)
    assert result.estimated.wait_p50_s == pytest.approx(1.0, abs=0.01)
    assert result.assumed == 0


def test_a_target_refuses_what_would_miss_it() -> None:
    records = journal(OFF, arrivals=200, apart_s=0.02)
    result = estimate(records, narrow(2, slo=SloConfig(ttft_s=1.5)))
    assert result.recorded.rejected == {}
    assert result.estimated.rejected.get("deadline", 0) > 50
    assert result.estimated.sent + sum(result.estimated.rejected.values()) <= 200
    assert result.estimated.wait_max_s is not None
    assert result.estimated.wait_max_s <= 1.5 + 0.01


def test_what_was_refused_and_would_be_sent_gets_a_mean_answer() -> None:
    strict = narrow(2, slo=SloConfig(ttft_s=0.5))
    records = journal(strict, arrivals=100, apart_s=0.02)
    result = estimate(records, OFF, header_of(strict))
    refused = sum(result.recorded.rejected.values())
    assert refused > 20
    assert result.assumed == refused
    assert result.estimated.sent == 100


def test_limits_are_told_over_time() -> None:
    result = estimate(journal(OFF), narrow(3))
    assert result.recorded.limits == {}
    limit = result.estimated.limits["gpu-a"]
    assert (limit.first, limit.last, limit.low, limit.high) == (3, 3, 3, 3)
    assert limit.mean == pytest.approx(3.0)


def test_requests_that_began_before_the_first_record_end_as_they_did() -> None:
    records = journal(OFF, arrivals=10)
    first = Host(OFF).controller
    place = [isinstance(record.event, FirstToken) for record in records].index(True)
    for record in records[: place + 1]:
        first.handle(record.event, record.now_s)
    head = header_of(OFF, dump_state(first))
    what_if = WhatIf(narrow(2))
    what_if.begin(head, "a.mjl", goes_on=False)
    for record in records[place + 1 :]:
        what_if.step(record)
    what_if.result()
    assert what_if._controller is not None
    assert what_if._controller.in_flight == 0


def test_nothing_is_kept_of_requests_that_have_ended() -> None:
    for before, after in ((OFF, narrow(2)), (narrow(2, slo={"ttft_s": 0.5}), OFF)):
        records = journal(before, arrivals=100)
        end_s = records[-1].now_s
        records.append(
            JournalRecord(number=0, now_s=end_s + 1000, event=ReplicaUp("gpu-a", ("llama",)))
        )
        what_if = WhatIf(after)
        what_if.begin(header_of(before), "a.mjl", goes_on=False)
        for record in records:
            what_if.step(record)
        what_if.result()
        assert (what_if._requests, what_if._apart, what_if._agenda) == ({}, set(), [])


def test_replicas_that_came_on_the_way_are_used_too() -> None:
    host = Host(OFF)
    settings = msgspec.structs.replace(OFF, replicas=("gpu-a", "gpu-b"))
    host.at(0.5, ConfigChanged(2, msgspec.json.encode(settings).decode()))
    host.at(0.5, ConfigChanged(3, "nonsense"))
    host.at(0.6, ReplicaUp("gpu-b", ("llama",)))
    for number in range(8):
        host.at(1.0, Arrived(request(number, arrived_s=1.0)))
    result = estimate(host.run(), narrow(2))
    assert set(result.estimated.limits) == {"gpu-a", "gpu-b"}
    assert result.estimated.held == 4


def test_clients_leave_when_they_left_and_failures_are_of_the_replica_here() -> None:
    host = Host(OFF)
    for number in range(4):
        host.at(1.0, Arrived(request(number, arrived_s=1.0)))
    host.at(1.5, Cancelled(3))
    host.at(1.5, Failed(0, "gpu-a", "broken", False))
    host.at(1.6, ConfigChanged(2, "{}"))
    result = estimate(host.run(), narrow(1))
    assert result.estimated.arrived == 4
    assert result.estimated.held == 3
    assert result.estimated.sent == 2
