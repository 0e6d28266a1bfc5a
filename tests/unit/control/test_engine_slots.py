"""How many requests an engine runs at once, as far as is seen of it."""

from __future__ import annotations

import pytest

from mileage.control.engine_slots import EngineSlots
from mileage.core.replica import ReplicaView


def see(slots: EngineSlots, running: int | None, waiting: int | None, **more: int) -> int | None:
    slots.observed(
        ReplicaView(replica="a", observed_s=0.0, running=running, waiting=waiting, **more)
    )
    return slots.most


def test_what_runs_while_others_wait_is_the_limit() -> None:
    slots = EngineSlots()
    assert see(slots, 100, 0) is None
    assert see(slots, 13, 3) is None  # perhaps a burst that is being let in
    assert see(slots, 64, 3) == 64
    assert see(slots, 40, 1) == 64  # a moment between two steps
    assert see(slots, 0, 5) == 64
    slots.forget()
    assert slots.most is None


def test_a_limit_that_nothing_waits_for_is_tried_again() -> None:
    slots = EngineSlots()
    see(slots, 10, 5)
    assert see(slots, 10, 5) == 10
    assert see(slots, 8, 0) == 10
    assert see(slots, 9, 0) == 13
    assert see(slots, 13, 0) == 17
    assert see(slots, 17, 2) == 17
    assert see(slots, 17, 2) == 17


def test_what_the_engine_says_and_the_operator_tells_counts_more() -> None:
    slots = EngineSlots()
    see(slots, 10, 5)
    assert see(slots, 10, 5, running_max=32) == 32
    slots.told = 16
    assert see(slots, 64, 5, running_max=32) == 16


@pytest.mark.parametrize(("running", "says"), [(-3, -1), (10**9, 0), (0, 10**9)])
def test_nonsense_is_left_out(running: int, says: int) -> None:
    assert see(EngineSlots(), running, 1, running_max=says) is None
