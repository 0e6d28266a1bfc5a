"""The reader: whole hours out of roll-ups, parts of hours out of minutes, the rest provisional."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from mileage.core.errors import LedgerError
from mileage.storage.retention import Retention
from mileage.storage.usage_reader import Gap, UsageReader
from tests.support.usage_world import HOUR_UTC_S, EvenSharing, UsageWorld, at_ns, ran

_NS = 1_000_000_000
HOUR = 3600


@pytest.fixture
def world(tmp_path: Path) -> Iterator[UsageWorld]:
    """Two hours and a half of two replicas, a request every 7 seconds that runs 30."""
    world = UsageWorld(tmp_path)
    world.seen(0, 9000)
    world.seen(1800, 9000, replica="b", state="warmup")
    world.ends(
        *(
            ran(n, n * 7, 30, model=f"m{n % 2}", key="ci", replica="ab"[n % 5 == 0])
            for n in range(1280)
        )
    )
    world.settle(9000)
    yield world
    world.close()


@pytest.fixture
def reader(world: UsageWorld) -> Iterator[UsageReader]:
    with closing(UsageReader(world.directory)) as reader:
        yield reader


def totals(reader: UsageReader, since: float, until: float) -> tuple[int, int, int, int]:
    """Requests, GPU time, capacity, and what is missing of it."""
    bounds = (HOUR_UTC_S + since, HOUR_UTC_S + until)
    usage, capacity = list(reader.usage(*bounds)), list(reader.capacity(*bounds))
    given = sum(row.gpu_ns for row in usage)
    there = sum(row.capacity_ns for row in capacity)
    rest = sum(row.idle_ns + row.warmup_ns for row in capacity)
    return sum(row.requests for row in usage), given, there, there - given - rest


def test_whole_hours_and_their_parts_add_up(reader: UsageReader) -> None:
    whole = totals(reader, 0, 3 * HOUR)
    assert whole[0] == 1280
    assert whole[2:] == ((9000 + 7200) * _NS, 0)
    parts = [
        totals(reader, a, b) for a, b in ((0, 1020), (1020, 1080), (1080, 7260), (7260, 10800))
    ]
    assert [sum(column) for column in zip(*parts, strict=True)] == list(whole)
    assert [part[3] for part in parts] == [0, 0, 0, 0]
    assert parts[1][2] == 60 * _NS


def test_bounds_are_whole_minutes(reader: UsageReader) -> None:
    span = reader.span(HOUR_UTC_S + 61.5, HOUR_UTC_S + HOUR + 119)
    assert span == (HOUR_UTC_S + 60, HOUR_UTC_S + HOUR + 60, False)
    assert totals(reader, 61.5, HOUR + 119) == totals(reader, 60, HOUR + 60)


def test_where_only_hours_are_kept_bounds_are_hours_and_it_is_told(world: UsageWorld) -> None:
    retention = Retention(world.store, booked_only=True)
    while retention.step(at_ns(HOUR)):
        pass
    with closing(UsageReader(world.directory)) as reader:
        assert reader.span(HOUR_UTC_S + 61, HOUR_UTC_S + 5000) == (
            HOUR_UTC_S,
            HOUR_UTC_S + 4980,
            True,
        )
        assert totals(reader, 100, HOUR) == totals(reader, 0, HOUR)
        assert totals(reader, 0, 100) == (0, 0, 0, 0)
        assert totals(reader, HOUR, HOUR + 60)[2] == 120 * _NS
        first = next(reader.requests(HOUR_UTC_S, HOUR_UTC_S + 9000))
        assert first.request.arrived_at_utc_ns >= at_ns(HOUR)
        assert reader.verify().problems == []


def test_texts_that_are_not_asked_for_are_added_up(reader: UsageReader) -> None:
    bounds = (HOUR_UTC_S, HOUR_UTC_S + 9000)
    rows = list(reader.usage(*bounds))
    by_tenant = list(reader.usage(*bounds, by=["tenant"]))
    assert len(by_tenant) == 3 * 3 * 2 < len(rows)
    assert {(row.model, row.key) for row in by_tenant} == {("", "")}
    assert {(row.model, row.key) for row in rows} == {("m0", "ci"), ("m1", "ci")}
    for field in ("requests", "gpu_ns", "prompt_tokens", "low_ns"):
        assert sum(getattr(row, field) for row in rows) == sum(
            getattr(row, field) for row in by_tenant
        )
    with pytest.raises(ValueError, match="colour"):
        next(reader.usage(*bounds, by=["colour"]))


def test_requests_have_their_time_and_what_of_it_is_in_later_hours(reader: UsageReader) -> None:
    uses = list(reader.requests(HOUR_UTC_S, HOUR_UTC_S + HOUR))
    assert [use.request.arrived_at_utc_ns for use in uses] == [at_ns(n * 7) for n in range(515)]
    assert all(use.settled for use in uses)
    given = totals(reader, 0, HOUR)[1]
    assert sum((use.gpu_ns or 0) - use.later_ns for use in uses) == given
    assert sum(use.later_ns > 0 for use in uses) in range(1, 6)


def test_the_tail_is_what_settling_makes_of_it(world: UsageWorld) -> None:
    world.seen(9000, 9100)
    world.ends(*(ran(5000 + n, 8990 + n * 9, 25) for n in range(9)))
    world.attributor.store_times()
    bounds = (HOUR_UTC_S, HOUR_UTC_S + 9100)
    with closing(UsageReader(world.directory, sharing=EvenSharing)) as reader:
        tail = reader.provisional(*bounds)
        before = list(reader.requests(*bounds, tail))
    assert (tail.since_utc_s, tail.until_utc_s) == (HOUR_UTC_S + 9000, HOUR_UTC_S + 9100)
    world.settle(9100)
    with closing(UsageReader(world.directory)) as reader:
        used = list(reader.usage(HOUR_UTC_S + 9000, bounds[1]))
        there = list(reader.capacity(HOUR_UTC_S + 9000, bounds[1] + 59))
        after = list(reader.requests(*bounds))
    # A request that began before is late for the pass, and on record now for both.
    keys = {(row.replica, row.tenant) for row in tail.usage}
    assert keys == {(row.replica, row.tenant) for row in used}
    ours = sum(row.gpu_ns for row in tail.usage)
    assert ours + sum(row.idle_ns for row in tail.capacity) == sum(
        row.capacity_ns for row in tail.capacity
    ) == 100 * _NS  # fmt: skip
    assert sum(row.idle_ns for row in there) == sum(row.idle_ns for row in tail.capacity)
    known = {use.request.id: use.gpu_ns for use in before}
    assert known == {use.request.id: use.gpu_ns for use in after}
    assert not before[-1].settled
    assert after[-1].settled


@pytest.mark.parametrize("until", [9100, 9101, 9119, 9120, 9147])
def test_rows_and_tail_have_all_time_on_record_wherever_settling_is(
    world: UsageWorld, until: int
) -> None:
    world.seen(9000, until)
    for settled in (9000, 9020, 9040, 9080, 9100):
        world.settle(settled)
        with closing(UsageReader(world.directory, sharing=EvenSharing)) as reader:
            bounds = (HOUR_UTC_S, HOUR_UTC_S + until)
            booked = sum(row.capacity_ns for row in reader.capacity(*bounds))
            rest = sum(row.capacity_ns for row in reader.provisional(*bounds).capacity)
        assert booked + rest == (until + 7200) * _NS


def test_what_a_gateway_left_open_is_known_long_after_it_was_stopped(world: UsageWorld) -> None:
    world.seen(9000, 9033)
    world.attributor.store_times()
    with closing(UsageReader(world.directory, sharing=EvenSharing)) as reader:
        for later in (0, 3 * HOUR, 30 * 24 * HOUR):
            tail = reader.provisional(HOUR_UTC_S, HOUR_UTC_S + 9033 + later)
            assert sum(row.capacity_ns for row in tail.capacity) == 33 * _NS


def test_gaps_are_when_nobody_looked(world: UsageWorld) -> None:
    world.seen(9300, 9400)
    world.settle(9400)
    with closing(UsageReader(world.directory)) as reader:
        assert reader.gaps(HOUR_UTC_S, HOUR_UTC_S + 10000) == [Gap("a", at_ns(9000), at_ns(9300))]
        assert reader.gaps(HOUR_UTC_S, HOUR_UTC_S + 8999) == []
        hours = {
            (row.hour_at_utc_s - HOUR_UTC_S, row.replica): row.observed_ns
            for row in reader.capacity(HOUR_UTC_S, HOUR_UTC_S + 3 * HOUR)
        }
    assert hours[2 * HOUR, "a"] == 1900 * _NS
    assert hours[0, "b"] == 1800 * _NS


def test_an_empty_ledger_has_nothing(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger here"):
        UsageReader(tmp_path)
    world = UsageWorld(tmp_path)
    with closing(UsageReader(tmp_path)) as reader:
        assert reader.settled_until_utc_s() is None
        assert reader.first_hour_utc_s() is None
        assert totals(reader, 0, 5000) == (0, 0, 0, 0)
        tail = reader.provisional(HOUR_UTC_S, HOUR_UTC_S + 100)
        assert (tail.usage, tail.capacity, tail.requests) == ([], [], {})
        verdict = reader.verify()
    assert msgspec.structs.astuple(verdict) == ([], 0, 0, 0, 0, 0, 0)
    world.close()


def test_the_reader_knows_from_when_to_when_there_are_rows(reader: UsageReader) -> None:
    assert reader.first_hour_utc_s() == HOUR_UTC_S
    assert reader.settled_until_utc_s() == HOUR_UTC_S + 9000


def test_a_snapshot_is_of_one_moment_whatever_is_settled_meanwhile(
    world: UsageWorld, reader: UsageReader
) -> None:
    world.seen(9000, 9600)
    world.attributor.store_times()
    with reader.snapshot():
        before = totals(reader, 0, 3 * HOUR)
        world.settle(9600)
        tail = reader.provisional(HOUR_UTC_S, HOUR_UTC_S + 9600)
        assert totals(reader, 0, 3 * HOUR) == before
        assert sum(row.capacity_ns for row in tail.capacity) == 600 * _NS
    assert totals(reader, 0, 3 * HOUR)[2] == before[2] + 600 * _NS


def test_hours_can_be_added_up(reader: UsageReader) -> None:
    bounds = (HOUR_UTC_S + 1020, HOUR_UTC_S + 7260)
    rows = list(reader.usage(*bounds, by=(), as_of_utc_s=7))
    assert {row.hour_at_utc_s for row in rows} == {7}
    apart = list(reader.usage(*bounds))
    for field in ("gpu_ns", "requests", "prompt_tokens", "high_ns"):
        assert sum(getattr(r, field) for r in rows) == sum(getattr(r, field) for r in apart)
    assert len(rows) <= 3 * 3 < len(apart)
