"""Replay: the same events give the same actions; the first that are not the same are told."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.control.controller import Controller
from mileage.control.journal_decoder import JournalRecord
from mileage.control.replay import Replayer, controller_of
from mileage.control.snapshot import dump_state
from mileage.core.actions import Action, Dispatch, Reject
from mileage.core.errors import TraceError
from mileage.core.events import Arrived, Event, Finished, ReplicaUp
from mileage.core.request import Endpoint
from tests.support.journals import header, request

CONFIG = ControlConfig(governor=GovernorConfig(mode="off"))
HEADER = header(config=msgspec.json.encode(CONFIG).decode(), seed=5)
LACKS: dict[str, tuple[Endpoint, ...]] = {"gpu-b": ("responses",)}
EVENTS: tuple[Event, ...] = (
    ReplicaUp("gpu-a", ("llama",)),
    ReplicaUp("gpu-b", ("llama",)),
    *(Arrived(request(number)) for number in range(20)),
    *(Finished(number, 100, None, 20) for number in range(20)),
    Arrived(request(99, model="nonsense")),
)


def recorded(controller: Controller | None = None) -> list[JournalRecord]:
    """What a controller does with the events."""
    controller = controller or Controller(
        HEADER.replicas, config=CONFIG, random=Random(5), lacks=LACKS
    )
    return [
        JournalRecord(
            number=number,
            now_s=0.1 * number,
            event=event,
            actions=tuple(controller.handle(event, 0.1 * number)),
        )
        for number, event in enumerate(EVENTS, 1)
    ]


def replayed(records: Sequence[JournalRecord]) -> Replayer:
    replayer = Replayer()
    replayer.begin(HEADER, "a.mjl", goes_on=False)
    for record in records:
        if replayer.step(record) is not None:
            break
    return replayer


def test_the_same_events_give_the_same_actions() -> None:
    replayer = replayed(recorded())
    assert replayer.difference is None
    assert replayer.records == len(EVENTS)
    assert replayer.events == {"replica_up": 2, "arrived": 21, "finished": 20}
    assert replayer.actions == {"dispatch": 20, "reject:model_not_found": 1}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param((), id="nothing was recorded"),
        pytest.param((Dispatch(5, "gpu-z"),), id="another replica"),
        pytest.param((Dispatch(5, "gpu-a"), Dispatch(6, "gpu-a")), id="one more"),
        pytest.param((Reject(5, "busy"),), id="another action"),
    ],
)
def test_the_first_difference_is_told_with_its_context(other: tuple[Action, ...]) -> None:
    records = recorded()
    changed = msgspec.structs.replace(records[7], actions=other)
    replayer = replayed([*records[:7], changed, *records[8:]])
    assert replayer.difference is not None
    assert replayer.difference.source == "a.mjl"
    assert replayer.difference.record == changed
    assert replayer.difference.actions == records[7].actions
    assert replayer.records == 8


def test_another_seed_is_a_difference() -> None:
    records = recorded()
    replayer = Replayer()
    replayer.begin(msgspec.structs.replace(HEADER, seed=6), "a.mjl", goes_on=False)
    assert any(replayer.step(record) for record in records)


def test_a_figure_that_is_no_number_is_the_same_as_itself() -> None:
    records = [
        msgspec.structs.replace(records, actions=(Reject(99, "busy", float("nan")),))
        for records in recorded()[-1:]
    ]
    replayer = replayed(recorded()[:-1])
    assert replayer.step(records[0]) is not None
    assert replayer.difference is not None


class Fragile(Controller):
    """Raises at one event, as a bug would."""

    def handle(self, event: Event, now_s: float) -> Sequence[Action]:
        if isinstance(event, Arrived) and event.request.id == 3:
            raise KeyError("gone")
        return super().handle(event, now_s)


@pytest.mark.parametrize(
    ("error", "same"),
    [
        pytest.param("KeyError: 'gone'", True, id="the same exception"),
        pytest.param("KeyError: 'other'", False, id="another one"),
        pytest.param(None, False, id="none was recorded"),
    ],
)
def test_an_exception_is_to_be_raised_again(
    error: str | None, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mileage.control.replay.Controller", Fragile)
    event = Arrived(request(3))
    replayer = replayed([JournalRecord(number=1, now_s=1.0, event=event, error=error)])
    assert (replayer.difference is None) is same


def test_a_controller_that_fails_open_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(controller: Controller, event: Event, now_s: float) -> Sequence[Action]:
        controller.failure = "KeyError: 'gone'"
        return ()

    monkeypatch.setattr(Controller, "handle", fail)
    records = [JournalRecord(number=n, now_s=1.0, event=EVENTS[0]) for n in (1, 2)]
    replayer = replayed(records)
    (failed,) = replayer.failed_open
    assert (failed.source, failed.record, failed.failure) == ("a.mjl", 1, "KeyError: 'gone'")


def test_a_segment_that_goes_on_keeps_its_controller_and_another_is_restored() -> None:
    controller = Controller(HEADER.replicas, config=CONFIG, random=Random(5))
    state = dump_state(controller)
    replayer = Replayer()
    replayer.begin(HEADER, "a.mjl", goes_on=True)
    replayer.begin(msgspec.structs.replace(HEADER, state=state), "b.mjl", goes_on=True)
    assert replayer.restored == 1
    replayer.begin(msgspec.structs.replace(HEADER, state=state), "c.mjl", goes_on=False)
    assert replayer.restored == 2


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"state": b"N."}, id="a state that is no controller"),
        pytest.param({"state": b"rubbish"}, id="a state that is none"),
        pytest.param({"config": '{"colour": 1}'}, id="a configuration with an unknown key"),
        pytest.param({"config": "{"}, id="a configuration that is no JSON"),
    ],
)
def test_a_header_that_this_version_cannot_take_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(TraceError, match=r"^a.mjl: "):
        controller_of(msgspec.structs.replace(HEADER, **changes), "a.mjl")
