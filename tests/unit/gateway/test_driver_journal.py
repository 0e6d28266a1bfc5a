"""Driver and journal: every event and its actions, before they are performed; exceptions too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from mileage.control.config import ControlConfig
from mileage.control.controller import Controller
from mileage.core.actions import Action
from mileage.core.events import Event, ReplicaDown, ReplicaUp
from mileage.core.request import Request
from mileage.core.timeline import RequestTimeline
from mileage.gateway.driver import Driver
from mileage.gateway.metrics import GatewayMetrics


class NoLog:
    """A request log that nothing is written to."""

    def encode_intent(self, request: Request, arrived_at_utc_ns: int) -> bytes:
        return b""

    def encode_finish(self, timeline: RequestTimeline) -> bytes:
        return b""

    def write(self, records: Sequence[bytes]) -> bool:
        return True

    def close(self) -> None: ...


class MemoryJournal:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[float, Event, object]] = []
        self.ok = False
        self.records_total, self.dropped_total = 7, 2

    def start(self, snapshot: Callable[[], bytes]) -> None: ...

    def handled(self, now_s: float, event: Event, actions: Sequence[Action]) -> None:
        self.told.append((now_s, event, tuple(actions)))

    def failed(self, now_s: float, event: Event, error: Exception) -> None:
        self.told.append((now_s, event, error))

    def flush(self) -> None: ...

    def close(self) -> None: ...


def driver(journal: MemoryJournal) -> Driver:
    controller = Controller(("a",), config=ControlConfig(), random=Random(1))
    return Driver(
        controller, [], NoLog(), GatewayMetrics(), on_ledger_failure="open", journal=journal
    )


def test_every_event_is_told_with_its_time_and_its_actions() -> None:
    journal = MemoryJournal()
    d = driver(journal)
    events: tuple[Event, ...] = (ReplicaUp("a", ("m",)), ReplicaDown("a", "why"))
    replayed = Controller(("a",), config=ControlConfig(), random=Random(1))
    for now_s, event in enumerate(events):
        d.handle(event, float(now_s))
    assert journal.told == [
        (float(now_s), event, tuple(replayed.handle(event, float(now_s))))
        for now_s, event in enumerate(events)
    ]


def test_an_exception_of_the_controller_is_told_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = KeyError("gone")

    def fail(controller: Controller, event: Event, now_s: float) -> Sequence[Action]:
        raise error

    monkeypatch.setattr(Controller, "handle", fail)
    journal = MemoryJournal()
    event = ReplicaDown("a", "why")
    with pytest.raises(KeyError):
        driver(journal).handle(event, 1.0)
    assert journal.told == [(1.0, event, error)]


def test_its_figures_are_metrics() -> None:
    d = driver(MemoryJournal())
    d.snapshot_ledger()
    numbers = {family.name: family.numbers for family in d.metrics.snapshot()}
    assert numbers["mileage_journal_records_total"] == {(): 7}
    assert numbers["mileage_journal_dropped_records_total"] == {(): 2}
    assert numbers["mileage_journal_stopped"] == {(): 1}
