"""The feeder settles what is over, and what nobody waits for: GPU time never holds requests up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.replica_attribution import ReplicaAttribution
from mileage.ledger.replica_time import ReplicaTime
from mileage.storage.feeder import DAY_NS, SETTLE_AFTER_S, Feeder
from mileage.storage.log import LogWriter
from mileage.storage.usage_reader import UsageReader
from tests.support.ledger_directory import stored
from tests.support.ledger_records import request
from tests.support.usage_world import HOUR_UTC_S, at_ns, ran

Open = Callable[..., LogWriter]


class Clock:
    """The second of the hour, and what the feeder sees of it."""

    second = 0.0

    def utc_ns(self) -> int:
        return at_ns(self.second)

    def monotonic(self) -> float:
        return self.second


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def settling(tmp_path: Path, clock: Clock) -> Iterator[Feeder]:
    feeder = Feeder(
        tmp_path,
        attribution=AttributionConfig(),
        retention_days=1,
        clock=clock.monotonic,
        utc_ns=clock.utc_ns,
    )
    yield feeder
    feeder.stop()


def up(feeder: Feeder, begin: float, end: float) -> None:
    feeder.note_replicas([ReplicaTime("a", at_ns(begin), at_ns(end), 1.0, "h100", "up")])


def settled_s(feeder: Feeder, clock: Clock, second: float) -> float | None:
    """Up to which second of the hour all is settled, once that second is reached."""
    clock.second = second
    while feeder.step():
        pass
    status = feeder.status()
    assert status.attribution_error is None
    until_ns = status.settled_until_utc_ns
    return None if until_ns is None else (until_ns - at_ns(0)) / 1e9


def begin(writer: LogWriter, number: int, arrived: float) -> int:
    end = ran(number, arrived, 0)
    writer.intent(request(number, id=end.id), end.arrived_at_utc_ns)
    return end.id


def test_a_window_waits_for_its_end_and_some_seconds(settling: Feeder, clock: Clock) -> None:
    up(settling, 0, 60)
    assert settled_s(settling, clock, 20 + SETTLE_AFTER_S - 1) in (None, 0.0)
    assert settled_s(settling, clock, 20 + SETTLE_AFTER_S) == 20
    assert settled_s(settling, clock, 59 + SETTLE_AFTER_S) == 40


def test_a_window_waits_for_its_requests_but_not_for_ever(
    settling: Feeder, clock: Clock, open_writer: Open
) -> None:
    up(settling, 0, 3700)
    writer = open_writer()
    begin(writer, 1, 25)
    begin(writer, 2, 70)
    assert settled_s(settling, clock, 200) == 20
    writer.finish(ran(1, 25, 100, replica="a"))
    assert settled_s(settling, clock, 201) == 60
    # The other one has been in flight for an hour.
    assert settled_s(settling, clock, 3669) == 60
    assert settled_s(settling, clock, 3675) == 3660
    writer.finish(ran(2, 70, 3600, replica="a"))
    assert settled_s(settling, clock, 3720) == 3700
    with closing(UsageReader(Path(settling._database).parent)) as reader:
        late = [row.late_requests for row in reader.capacity(HOUR_UTC_S, HOUR_UTC_S + 7200)]
        assert sum(late) == 1
        assert reader.verify().problems == []
        assert [use.settled for use in reader.requests(HOUR_UTC_S, HOUR_UTC_S + 100)] == [True] * 2


def test_requests_are_stored_whatever_becomes_of_their_gpu_time(
    settling: Feeder,
    clock: Clock,
    open_writer: Open,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: object, *args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("what went wrong")

    with monkeypatch.context() as patch:
        patch.setattr(ReplicaAttribution, "window", fail)
        up(settling, 0, 60)
        writer = open_writer()
        for number in range(3):
            clock.second = 100 + number * 0.001
            writer.finish(ran(number, 5, 5))
            while settling.step():
                pass
            assert len(stored(tmp_path)) == number + 1
        assert settling.status().attribution_error == "what went wrong"
        assert settling.status().error is None
        # Rows that are not booked are not deleted.
        clock.second = 100 + DAY_NS / 1e9
        while settling.step():
            pass
        assert len(stored(tmp_path)) == 3
    assert settled_s(settling, clock, 200 + DAY_NS / 1e9) is not None
    clock.second += 100
    while settling.step():
        pass
    assert stored(tmp_path) == {}
    with closing(UsageReader(tmp_path)) as reader:
        assert sum(row.requests for row in reader.usage(HOUR_UTC_S, HOUR_UTC_S + 3600)) == 3
        assert reader.verify().problems == []


def test_what_was_seen_of_replicas_is_stored_before_the_end(
    settling: Feeder, clock: Clock, tmp_path: Path
) -> None:
    settling.start()
    up(settling, 0, 10)
    assert settling.stop()
    with closing(UsageReader(tmp_path)) as reader:
        tail = reader.provisional(HOUR_UTC_S, HOUR_UTC_S + 20)
    assert [row.capacity_ns for row in tail.capacity] == [10_000_000_000]


def test_a_feeder_without_an_attribution_settles_nothing(
    tmp_path: Path, clock: Clock, open_writer: Open
) -> None:
    feeder = Feeder(tmp_path, utc_ns=clock.utc_ns)
    up(feeder, 0, 60)
    open_writer().finish(ran(0, 5, 5))
    assert settled_s(feeder, clock, 100) is None
    assert len(stored(tmp_path)) == 1
    feeder.stop()
