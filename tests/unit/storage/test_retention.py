"""Retention: old requests go when they are booked; what they had is kept as sums."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mileage.storage.retention import RETENTION_ROWS, Retention
from tests.support.usage_world import UsageWorld, at_ns, ran


@pytest.fixture
def world(tmp_path: Path) -> Iterator[UsageWorld]:
    world = UsageWorld(tmp_path)
    yield world
    world.close()


def test_only_what_is_booked_is_deleted(world: UsageWorld) -> None:
    world.seen(0, 7200)
    world.ends(ran(0, 10, 5), ran(1, 15, 20), ran(2, 100, 5))
    world.settle(20)
    retention = Retention(world.store, booked_only=True)
    retention.step(at_ns(7200))
    assert world.rows("SELECT arrived_at_utc_ns FROM requests ORDER BY id") == [
        (at_ns(15),),
        (at_ns(100),),
    ]
    assert world.verdict().problems == []
    world.settle(7200)
    retention.step(at_ns(7200))
    assert world.rows("SELECT count(*) FROM requests") == [(0,)]
    assert world.verdict().problems == []


def test_hours_stay_and_what_they_rest_on_goes(world: UsageWorld) -> None:
    world.seen(0, 3500)
    world.seen(4100, 12_000)
    world.ends(*(ran(n, n * 30, 60) for n in range(390)))
    world.settle(12_000)
    hours = world.rows("SELECT * FROM usage_hours")
    retention = Retention(world.store, booked_only=True)
    while retention.step(at_ns(5000)):
        pass
    assert world.rows("SELECT * FROM usage_hours") == hours
    assert world.rows("SELECT min(arrived_at_utc_ns) FROM requests") == [(at_ns(5010),)]
    # Whole hours of minutes, so that one that is there is there whole.
    assert world.rows("SELECT min(minute_at_utc_s) FROM usage_minutes") == [
        (at_ns(3600) // 1_000_000_000,)
    ]
    assert world.rows("SELECT min(minute_at_utc_s) FROM capacity_minutes") == [
        (at_ns(4080) // 1_000_000_000,)
    ]
    assert world.rows("SELECT from_utc_ns FROM replica_time") == [(at_ns(4100),)]
    assert world.rows("SELECT sum(requests), count(*) FROM retired") == [(167, 3)]
    verdict = world.verdict()
    assert verdict.problems == []
    assert verdict.requests == 390 - 167


def test_a_step_deletes_a_bounded_number(world: UsageWorld) -> None:
    world.ends(*(ran(n, n * 0.01, None, replica=None) for n in range(RETENTION_ROWS + 500)))
    world.settle(100)
    retention = Retention(world.store, booked_only=True)
    assert retention.step(at_ns(100))
    assert world.rows("SELECT count(*) FROM requests") == [(500,)]
    while retention.step(at_ns(100)):
        pass
    assert world.verdict().problems == []


def test_without_an_attribution_all_that_is_old_is_deleted(world: UsageWorld) -> None:
    world.ends(ran(0, 10, 5), ran(1, 500, 5))
    Retention(world.store, booked_only=False).step(at_ns(100))
    assert world.rows("SELECT arrived_at_utc_ns FROM requests") == [(at_ns(500),)]
    assert world.rows("SELECT count(*) FROM retired") == [(0,)]
