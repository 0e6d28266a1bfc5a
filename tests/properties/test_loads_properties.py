"""Requests for models that sleep, in any order of events: none is lost; a replay is the same."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal

import hypothesis.strategies as st
from hypothesis import given

from mileage.control.config import ControlConfig, GovernorConfig, LoadsConfig
from mileage.control.controller import Controller
from mileage.core.actions import Action, Dispatch, Hold, Load, Reject
from mileage.core.events import (
    Arrived,
    Cancelled,
    Event,
    Finished,
    Loadable,
    LoadFailed,
    ReplicaDown,
    ReplicaUp,
    Woke,
)
from tests.support.controllers import request

MODELS = {"a": "llama", "b": "qwen", "c": "llama"}
Step = tuple[Literal["arrive", "up", "down", "fail", "leave", "end", "wake"], int, float]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "arrive", "up", "down", "fail", "leave", "end", "wake"]),
        st.integers(0, 20),
        st.sampled_from([0.0, 0.1, 1.0, 40.0]),
    ),
    max_size=40,
)


def new(mode: Literal["act", "off"], queue_max: int) -> Controller:
    made = Controller(
        MODELS,
        config=ControlConfig(
            governor=GovernorConfig(mode=mode),
            loads=LoadsConfig(queue_max=queue_max, wait_max_s=60.0),
        ),
        random=Random(1),
    )
    for name, model in MODELS.items():
        made.handle(ReplicaDown(name, "asleep"), 0.0)
        made.handle(Loadable(name, (model,)), 0.0)
    return made


class Host:
    """What becomes of each request, by the controller's word."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.now_s = 0.0
        self.waits: dict[int, str] = {}
        self.runs: dict[int, str] = {}
        self.up: set[str] = set()
        self.journal: list[tuple[float, Event, Sequence[Action]]] = []

    def tell(self, event: Event) -> None:
        actions = tuple(self.controller.handle(event, self.now_s))
        self.journal.append((self.now_s, event, actions))
        for action in actions:
            if isinstance(action, Hold):
                assert action.request_id in self.waits
            elif isinstance(action, Dispatch):
                self.runs[action.request_id] = action.replica
                assert MODELS[action.replica] == self.waits.pop(action.request_id)
                assert action.replica in self.up
            elif isinstance(action, Reject):
                del self.waits[action.request_id]
            elif isinstance(action, Load):
                assert not any(MODELS[name] == action.model for name in self.up)

    def step(self, number: int, step: Step) -> None:
        what, pick, passed_s = step
        self.now_s += passed_s
        name = sorted(MODELS)[pick % len(MODELS)]
        if what == "arrive":
            self.waits[number] = MODELS[name]
            self.tell(Arrived(request(number, MODELS[name], arrived_s=self.now_s)))
        elif what == "up":
            self.up.add(name)
            self.tell(ReplicaUp(name, (MODELS[name],)))
        elif what == "down" and name not in self.runs.values():
            self.up.discard(name)
            self.tell(ReplicaDown(name, "asleep"))
        elif what == "fail" and not any(MODELS[n] == MODELS[name] for n in self.up):
            self.tell(LoadFailed(MODELS[name], "no memory", 5.0))
            assert MODELS[name] not in self.waits.values()
        elif what == "leave" and self.waits:
            gone = sorted(self.waits)[pick % len(self.waits)]
            del self.waits[gone]
            self.tell(Cancelled(gone))
        elif what == "end" and self.runs:
            done = sorted(self.runs)[pick % len(self.runs)]
            del self.runs[done]
            self.tell(Finished(done, 10, None, 10))
        else:
            self.tell(Woke())


@given(steps=STEPS, mode=st.sampled_from(["act", "off"]), queue_max=st.integers(1, 5))
def test_no_request_is_lost(steps: list[Step], mode: Literal["act", "off"], queue_max: int) -> None:
    host = Host(new(mode, queue_max))
    for number, step in enumerate(steps, 1):
        host.step(number, step)
        held = host.controller.loads.waiting()
        assert host.controller.in_flight == len(host.waits) + len(host.runs)
        assert not any(MODELS[name] in held for name in host.up)
        assert all(count <= queue_max for count in held.values())
    again = new(mode, queue_max)
    for now_s, event, actions in host.journal:
        assert tuple(again.handle(event, now_s)) == actions
    host.now_s += 1000.0  # whatever waits has waited long enough
    host.tell(Woke())
    assert host.controller.loads.total == 0
