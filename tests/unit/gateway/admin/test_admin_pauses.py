"""The list of workers' pauses: all workers, in order of time."""

from __future__ import annotations

from msgspec.structs import replace

from mileage.gateway.admin.pauses import pause_list
from mileage.gateway.pause_watch import LongPause
from tests.support.admin_plane import AdminPlane


def test_the_pauses_of_all_workers_are_told_as_they_began() -> None:
    plane = AdminPlane()
    plane.advance(2)
    one, other = plane.fleet.reports()
    late = LongPause(kind="event_loop", at_utc_s=12.5, length_s=0.2)
    full = LongPause(kind="gc", at_utc_s=11.0, length_s=0.3, generation=2)
    rows = pause_list([replace(one, pauses=(late,)), replace(other, pauses=(full,))]).pauses
    assert [(row.pid, row.kind, row.at_utc_s) for row in rows] == [
        (other.pid, "gc", 11.0),
        (one.pid, "event_loop", 12.5),
    ]


def test_without_any_the_list_is_empty() -> None:
    answer = AdminPlane().call("/api/v1/pauses")
    assert (answer.status, answer.json()) == (200, {"pauses": []})
