"""Tally: what became of requests, counted once each, and limits over time."""

from __future__ import annotations

import pytest

from mileage.control.tally import LimitRange, Tally
from mileage.core.actions import Dispatch, Hold, Join, Reject, SetLimit, WakeAt


def test_requests_are_counted_by_what_became_of_them() -> None:
    tally = Tally()
    tally.arrived = 5
    for action, now_s in (
        (Hold(1), 1.0),
        (Dispatch(1, "a"), 3.0),
        (Dispatch(2, "a"), 3.0),
        (Dispatch(2, "b"), 4.0),  # failed over
        (Hold(3), 4.0),
        (Reject(3, "deadline", 1.0), 5.0),
        (Join(4, 2, "same"), 5.0),
        (Hold(5), 5.0),
        (WakeAt(9.0), 5.0),
    ):
        tally.did(action, now_s)
    summary = tally.summary()
    assert (summary.arrived, summary.sent, summary.held, summary.joined) == (5, 2, 3, 1)
    assert summary.rejected == {"deadline": 1}
    assert (summary.waited, summary.waiting) == (1, 1)
    assert (summary.wait_p50_s, summary.wait_p99_s, summary.wait_max_s) == (2.0, 2.0, 2.0)
    assert summary.limits == {}


def test_without_requests_there_are_no_waits() -> None:
    summary = Tally().summary()
    assert (summary.wait_p50_s, summary.wait_max_s) == (None, None)


def test_a_limit_is_weighted_by_the_time_that_it_held() -> None:
    tally = Tally()
    for limit, now_s in ((10, 0.0), (20, 3.0), (20, 3.5), (5, 4.0)):
        tally.did(SetLimit("a", limit, "why"), now_s)
    tally.did(WakeAt(0.0), 10.0)
    assert tally.summary().limits == {
        "a": LimitRange(
            first=10,
            last=5,
            low=5,
            high=20,
            changes=2,
            mean=pytest.approx(8.0),  # type: ignore[arg-type]
        )
    }


def test_an_id_that_ended_is_a_new_request_when_it_comes_again() -> None:
    tally = Tally()
    for _ in range(2):
        tally.did(Dispatch(1, "a"), 1.0)
        tally.gone(1)
    assert tally.summary().sent == 2
