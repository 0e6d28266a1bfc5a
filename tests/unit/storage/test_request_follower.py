"""RequestFollower: every request once, also those that are stored late."""

from __future__ import annotations

from mileage.core.timeline import RequestTimeline
from mileage.storage.request_follower import RequestFollower


class _Ledger:
    def __init__(self) -> None:
        self.rows: list[RequestTimeline] = []

    def arrived(self, since_utc_ns: int, before_utc_ns: int) -> list[RequestTimeline]:
        return [r for r in self.rows if since_utc_ns <= r.arrived_at_utc_ns < before_utc_ns]


def row(number: int, at_s: float) -> RequestTimeline:
    return RequestTimeline(
        id=number,
        tenant="a",
        model="m",
        endpoint="chat",
        stream=True,
        arrived_at_utc_ns=round(at_s * 1e9),
        outcome="ok",
        status=200,
    )


def test_each_request_is_found_once_also_when_it_is_stored_late() -> None:
    ledger = _Ledger()
    follower = RequestFollower(ledger, 0)

    def ids(now_s: float) -> list[int]:
        return [found.id for found in follower.look(round(now_s * 1e9))]

    ledger.rows = [row(1, 1.0), row(2, 2.0)]
    assert ids(3) == [1, 2]
    ledger.rows.append(row(3, 4.0))
    assert ids(5) == [3]
    assert ids(5) == []
    ledger.rows.append(row(4, 10.0))  # it ran for half an hour
    assert ids(1810) == [4]
    ledger.rows.append(row(5, 30.0))
    assert ids(1815) == [], "only the last minutes are looked at in between"
    assert ids(1880) == [5]
    assert ids(9000) == []
    assert follower.forgotten == 0


def test_what_arrived_before_is_left_out() -> None:
    ledger = _Ledger()
    ledger.rows = [row(1, 1.0), row(2, 20.0)]
    assert [r.id for r in RequestFollower(ledger, 10_000_000_000).look(30_000_000_000)] == [2]
