"""Paces: what is due when, in open and closed loops."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from mileage.core.errors import TraceError
from mileage.loadgen.feed import Feed
from mileage.loadgen.pace import REST_S, ClosedPace, OpenPace
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.run_options import Ramp, RunOptions


def planned(*times_s: float) -> list[PlannedCall]:
    return [PlannedCall(index=n, scheduled_s=t, path=b"/", body=b"") for n, t in enumerate(times_s)]


def taken(pace: OpenPace | ClosedPace, now_s: float) -> list[tuple[int, float]]:
    found = []
    while (due := pace.take(now_s)) is not None:
        found.append((due[0].index, due[1]))
    return found


def test_an_open_loop_takes_what_is_due_and_keeps_its_time() -> None:
    pace = OpenPace(Feed(planned(0.0, 1.0, 1.0, 2.5)), RunOptions(), until_s=math.inf)
    assert taken(pace, 1.2) == [(0, 0.0), (1, 1.0), (2, 1.0)]
    assert pace.next_s() == 2.5
    before = pace.over
    assert taken(pace, 9.0) == [(3, 2.5)]
    assert (before, pace.over) == (False, True)
    assert pace.next_s() == math.inf


def test_an_open_loop_ends_with_its_window() -> None:
    pace = OpenPace(Feed(planned(0.0, 1.0, 2.0)), RunOptions(), until_s=2.0)
    assert taken(pace, 5.0) == [(0, 0.0), (1, 1.0)]
    assert pace.over


def test_an_open_loop_with_a_ramp_is_due_by_the_plans_own_clock() -> None:
    options = RunOptions(ramp=Ramp(start=2, end=2, over_s=1))
    pace = OpenPace(Feed(planned(1.0, 3.0)), options, until_s=math.inf)
    assert taken(pace, 9.0) == [(0, 0.5), (1, 1.5)]


def test_answers_change_nothing_in_an_open_loop() -> None:
    pace = OpenPace(Feed(planned(1.0)), RunOptions(), until_s=math.inf)
    pace.free(0.5, failed=True)
    assert pace.next_s() == 1.0


def closed(count: int = 100, until_s: float = math.inf, **options: Any) -> ClosedPace:
    usual = RunOptions(mode="closed", **options)
    return ClosedPace(Feed(planned(*[0.0] * count)), usual, until_s=until_s)


def test_a_closed_loop_fills_its_lanes_and_waits() -> None:
    pace = closed(concurrency=2)
    assert taken(pace, 0.0) == [(0, 0.0), (1, 0.0)]
    assert taken(pace, 5.0) == []
    pace.free(7.0, failed=False)
    assert taken(pace, 7.0) == [(2, 7.0)]


def test_a_lane_thinks_before_its_next_call() -> None:
    pace = closed(concurrency=1, think_s=2.0)
    taken(pace, 0.0)
    pace.free(1.0, failed=False)
    assert taken(pace, 2.9) == []
    assert pace.next_s() == 3.0
    assert taken(pace, 3.1) == [(1, 3.0)]


def test_a_lane_rests_after_a_failure() -> None:
    pace = closed(concurrency=1)
    taken(pace, 0.0)
    pace.free(1.0, failed=True)
    assert pace.next_s() == pytest.approx(1.0 + REST_S)


def test_lanes_come_and_go_with_a_ramp() -> None:
    pace = closed(ramp=Ramp(start=1, end=3, over_s=10))
    assert len(taken(pace, 0.0)) == 1
    assert len(taken(pace, 5.0)) == 1
    assert len(taken(pace, 10.0)) == 1
    pace = closed(ramp=Ramp(start=3, end=1, over_s=10))
    assert len(taken(pace, 0.0)) == 3
    pace.free(6.0, failed=False)
    assert taken(pace, 6.0) == []
    pace.free(6.0, failed=False)
    assert taken(pace, 6.0) == []
    pace.free(6.0, failed=False)
    assert len(taken(pace, 6.0)) == 1


def test_a_closed_loop_ends_with_its_window_or_its_plan() -> None:
    pace = closed(concurrency=1, until_s=2.0)
    taken(pace, 0.0)
    pace.free(2.0, failed=False)
    assert taken(pace, 2.0) == []
    assert pace.over
    pace = closed(count=1, concurrency=2)
    assert len(taken(pace, 0.0)) == 1
    assert pace.over


def test_a_plan_that_breaks_off_ends_there_and_tells_why() -> None:
    def broken() -> Iterator[PlannedCall]:
        yield from planned(0.0)
        raise TraceError("trace.csv", 7, "no number")

    feed = Feed(broken())
    feed.fill(1.0)
    pace = OpenPace(feed, RunOptions(), until_s=math.inf)
    assert taken(pace, 1.0) == [(0, 0.0)]
    assert pace.over
    assert feed.error == "trace.csv:7: no number"


def test_a_feed_holds_no_more_than_it_may() -> None:
    made = 0

    def endless() -> Iterator[PlannedCall]:
        nonlocal made
        while True:
            made += 1
            yield PlannedCall(index=made, scheduled_s=0.0, path=b"/", body=b"x" * (1 << 20))

    feed = Feed(endless())
    feed.fill(60.0)
    assert made == 64
    assert not feed.low
    feed.pop()
    assert feed.low
