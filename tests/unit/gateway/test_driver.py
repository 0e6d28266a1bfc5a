"""Driver: records of one turn are written together; what fails takes nothing else along."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal, cast

import pytest

from mileage.control.config import ControlConfig
from mileage.control.controller import Controller
from mileage.core.actions import Action, WakeAt
from mileage.core.events import Event, ReplicaUp, Woke
from mileage.core.replica import Adapter
from mileage.core.request import Request
from mileage.core.timeline import RequestTimeline
from mileage.gateway.driver import Driver
from mileage.gateway.metrics import GatewayMetrics


class MemoryLog:
    """Keeps what is written; `error` is raised, `works` is answered."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.works = True
        self.error: Exception | None = None

    def encode_intent(self, request: Request, arrived_at_utc_ns: int) -> bytes:
        return b"intent %d" % request.id

    def encode_finish(self, timeline: RequestTimeline) -> bytes:
        return b"finish %d" % timeline.id

    def write(self, records: Sequence[bytes]) -> bool:
        if self.error is not None:
            raise self.error
        self.batches.append([*records])
        return self.works

    def close(self) -> None: ...


def driver(log: MemoryLog, on_failure: Literal["open", "closed"] = "open") -> Driver:
    controller = Controller(("a",), config=ControlConfig(), random=Random(1))
    return Driver(controller, [], log, GatewayMetrics(), on_ledger_failure=on_failure)


def request(number: int) -> Request:
    return Request(
        id=number,
        tenant="t",
        model="m",
        endpoint="chat",
        stream=False,
        arrived_s=0.0,
        prompt_tokens_estimate=1,
    )


def timeline(number: int, model: str = "m") -> RequestTimeline:
    return RequestTimeline(
        id=number,
        tenant="t",
        model=model,
        endpoint="chat",
        stream=False,
        arrived_at_utc_ns=0,
        outcome="ok",
        status=200,
        finished_s=1.0,
    )


def ignore(recorded: bool) -> None: ...


def never() -> None:
    raise AssertionError


def in_loop(scenario: Callable[[], None]) -> None:
    async def main() -> None:
        scenario()
        await asyncio.sleep(0)

    asyncio.run(main())


def test_a_record_that_comes_alone_is_written_at_once_and_a_crowd_together() -> None:
    log = MemoryLog()
    done: list[tuple[str, bool, int]] = []

    def note(what: str, ok: bool) -> None:
        done.append((what, ok, len(log.batches)))

    def scenario() -> None:
        made = driver(log)
        made.record_intent(request(1), 0, lambda ok: note("alone", ok), never)
        assert done == [("alone", True, 1)]
        made._recorded_s = time.monotonic() + 60  # however slow this machine is
        made.record_intent(request(2), 0, lambda ok: note("sent", ok), never)
        made.finish(timeline(3), lambda ok: note("answered", ok), never)
        made.finish(timeline(4), ignore, never)
        assert len(log.batches) == len(done) == 1

    in_loop(scenario)
    assert log.batches == [[b"intent 1"], [b"intent 2", b"finish 3", b"finish 4"]]
    assert done[1:] == [("sent", True, 2), ("answered", True, 2)]


@pytest.mark.parametrize("error", [None, OSError("disk"), ValueError("bug")])
@pytest.mark.parametrize(
    ("on_failure", "may_go_on"),
    [pytest.param("open", True, id="open"), pytest.param("closed", False, id="closed")],
)
def test_a_log_that_cannot_be_written(
    on_failure: Literal["open", "closed"], may_go_on: bool, error: Exception | None
) -> None:
    log = MemoryLog()
    log.works, log.error = False, error
    told: list[bool] = []
    made = driver(log, on_failure)
    in_loop(lambda: made.record_intent(request(1), 0, told.append, never))
    assert told == [may_go_on]
    states = [made.ledger_ok]
    made.snapshot_ledger()
    assert made.metrics.records.ledger_dropped.values[()] == 1
    log.works, log.error = True, None
    in_loop(lambda: made.record_intent(request(2), 0, told.append, never))
    states.append(made.ledger_ok)
    assert states == [False, True]
    assert told[-1]


def test_one_request_that_fails_to_go_on_takes_no_other_along() -> None:
    told: list[bool] = []
    cut: list[int] = []

    def broken(recorded: bool) -> None:
        raise RuntimeError("bug")

    def scenario() -> None:
        made = driver(MemoryLog())
        made.record_intent(request(1), 0, broken, lambda: cut.append(1))
        made.record_intent(request(2), 0, told.append, never)

    in_loop(scenario)
    assert told == [True]
    assert cut == [1]


def test_a_name_that_no_engine_ever_served_is_no_label() -> None:
    made = driver(MemoryLog())

    def scenario() -> None:
        made.finish(timeline(1, "free text"), ignore, never)
        made.handle(ReplicaUp("a", ("m",)), 0.0)
        made.finish(timeline(2), ignore, never)

    in_loop(scenario)
    assert [labels[0] for labels in made.metrics.requests.values] == ["unknown", "m"]


def test_an_adapter_is_one_until_a_replica_says_otherwise() -> None:
    made = driver(MemoryLog())
    sql, chat = Adapter("sql", "sql", "m"), Adapter("chat", "chat", "m")

    def scenario() -> None:
        made.handle(ReplicaUp("a", ("m", "sql", "chat"), (sql, chat)), 0.0)
        made.handle(ReplicaUp("a", ("m", "sql"), (sql,)), 0.0)
        assert made.adapters == {"sql": sql, "chat": chat}  # what runs still is for it
        made.handle(ReplicaUp("a", ("m", "sql", "chat")), 0.0)
        assert made.adapters == {}

    in_loop(scenario)


def test_a_later_wake_puts_off_no_earlier_one() -> None:
    class Sleeper:
        """Wants to be woken, twice at once: what is performed meanwhile may ask for it sooner."""

        def __init__(self) -> None:
            self.heard: list[Event] = []

        def handle(self, event: Event, now_s: float) -> Sequence[Action]:
            self.heard.append(event)
            first = len(self.heard) == 1
            return [WakeAt(now_s), WakeAt(now_s + 1000.0)] if first else []

    async def story() -> list[Event]:
        sleeper = Sleeper()
        made = driver(MemoryLog())
        made.controller = cast("Controller", sleeper)
        made.handle(ReplicaUp("a", ("m",)), time.monotonic())
        async with asyncio.timeout(60):
            while len(sleeper.heard) < 2:  # noqa: ASYNC110 -- a timer of the driver's
                await asyncio.sleep(0)
        made.stop()
        return sleeper.heard

    assert asyncio.run(story())[1:] == [Woke()]
