"""The event queue: time, then priority, then the order of asking."""

from __future__ import annotations

import math

import pytest

from mileage.sim.event_queue import EventQueue


def test_events_come_by_time_then_priority_then_in_the_order_of_pushing() -> None:
    queue: EventQueue[object] = EventQueue()
    for time_s, priority, name in (
        (2.0, 0, "later"),
        (1.0, 5, "last of its time"),
        (1.0, 1, "first asked"),
        (1.0, 1, "asked after it"),
        (0.5, 9, "earliest"),
    ):
        queue.push(time_s, priority, name)
    assert [queue.pop()[3] for _ in range(len(queue))] == [
        "earliest",
        "first asked",
        "asked after it",
        "last of its time",
        "later",
    ]


def test_payloads_are_never_compared() -> None:
    queue: EventQueue[complex] = EventQueue()
    for value in (1j, 2j, 3j):  # complex numbers have no order
        queue.push(1.0, 0, value)
    assert queue.pop()[3] == 1j


def test_an_outdated_event_is_known_by_its_number() -> None:
    queue: EventQueue[str] = EventQueue()
    old = queue.push(2.0, 0, "old")
    new = queue.push(1.0, 0, "new")
    assert queue.pop()[2] == new
    assert queue.pop()[2] == old


def test_an_empty_queue_has_no_next_event() -> None:
    queue: EventQueue[str] = EventQueue()
    assert queue.next_s == math.inf
    with pytest.raises(IndexError):
        queue.pop()
