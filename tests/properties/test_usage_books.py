"""Whatever requests do, whenever the process dies: GPU time is booked once, and adds up."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.core.timeline import RequestTimeline
from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.replica_attribution import ReplicaAttribution
from mileage.storage.sqlite import RowBatch
from tests.support.usage_world import EvenSharing, UsageWorld, at_ns, ran

_NS = 1_000_000_000
SPAN_S = 300
BEGIN_S = 3500
"""So that the span has the end of an hour in it."""


class Killed(BaseException):
    """The process dies here."""


class Mortal:
    """A connection that dies at the n-th statement."""

    def __init__(self, connection: sqlite3.Connection, statements: int) -> None:
        self._connection, self._left = connection, statements

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._connection, name)
        if name not in ("execute", "executemany"):
            return found

        def counted(*arguments: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise Killed
            return found(*arguments)

        return counted


@contextmanager
def dying(world: UsageWorld, statements: int) -> Iterator[None]:
    """The process dies after so many statements, if it is not done before; then it starts anew."""
    store = world.store
    connection = store._connection
    store._connection = Mortal(connection, statements)  # type: ignore[assignment]
    try:
        yield
    except Killed:
        connection.close()  # what was not committed is undone
        pending = list(world.times._pending)
        world.open()
        world.times.note(pending)
    else:
        store._connection = connection


def any_request(random: Random, number: int) -> RequestTimeline:
    arrived = BEGIN_S + random.uniform(0, SPAN_S)
    changes: dict[str, Any] = {
        "outcome": random.choice(["ok", "ok", "ok", "failed", "cancelled", "lost", "rejected"]),
        "prompt_tokens": random.choice([None, 0, 50, 5000, 1 << 62]),
        "output_tokens": random.choice([None, 1, 300]),
        "output_tokens_counted": random.choice([None, 7]),
        "key": random.choice([None, "ci"]),
        "labels": random.choice([None, "env=a", "env=b"]),
        "cost_nano_usd": random.choice([None, None, 3]),
    }
    replica = random.choice(["a", "a", "b", "c", None, ""])
    lasted = random.choice([None, 0.0, random.uniform(0, 5), random.uniform(0, 90), 1e9])
    return ran(number, arrived, lasted, replica=replica, **changes)


def any_states(random: Random) -> list[tuple[str, float, float, Any, float]]:
    found = []
    for replica in ("a", "b", "quiet"):
        at = BEGIN_S + random.uniform(-10, 60)
        while at < BEGIN_S + SPAN_S:
            lasted = random.uniform(1, 40)
            state = random.choice(["up", "up", "up", "warmup", "down", None])
            if state is not None:
                found.append((replica, at, at + lasted, state, random.choice([1.0, 1.0, 8.0, 0.3])))
            at += lasted
    return found


def check(world: UsageWorld) -> None:
    verdict = world.verdict()
    assert verdict.problems == []
    for replica, given_ns, capacity_ns in world.rows(
        "SELECT replica, (SELECT coalesce(sum(gpu_ns), 0) FROM usage_hours u "
        "WHERE u.replica = c.replica) + sum(idle_ns) + sum(warmup_ns), sum(capacity_ns) "
        "FROM capacity_hours c GROUP BY replica"
    ):
        assert given_ns == capacity_ns, replica


@pytest.mark.parametrize("sharing", ["even", "real"])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_time_is_booked_once_and_adds_up_whenever_the_process_dies(sharing: str, seed: int) -> None:
    random = Random(seed)

    def real(replica: str) -> ReplicaAttribution:
        return ReplicaAttribution(replica, AttributionConfig())

    with tempfile.TemporaryDirectory() as directory:
        world = UsageWorld(Path(directory), sharing=EvenSharing if sharing == "even" else real)
        requests = [any_request(random, number) for number in range(random.randrange(1, 60))]
        states = sorted(any_states(random), key=lambda state: state[2])
        at = float(BEGIN_S)
        while at < BEGIN_S + SPAN_S + 200:
            at += random.uniform(0, 60)
            # Some are stored long after they ran.
            now = [r for r in requests if r.arrived_at_utc_ns < at_ns(at) and random.random() < 0.8]
            requests = [r for r in requests if r not in now]
            world.ends(*now)
            while states and states[0][2] <= at:
                replica, begin, end, state, gpus = states.pop(0)
                world.seen(begin, end, replica=replica, state=state, gpus=gpus)
            for _ in range(random.randrange(3)):
                with dying(world, random.randrange(60)):
                    world.settle(at - random.choice([0, 15]))
            check(world)
        world.ends(*requests)
        world.settle(at)
        world.settle(at + 40)
        check(world)
        stored = world.rows("SELECT count(*), sum(booked = 2) FROM requests")
        assert stored[0][0] == stored[0][1]
        assert world.rows("SELECT sum(requests) FROM usage_hours") == [(stored[0][0],)]
        if sharing == "even":
            # It learns one window after the other, and each is booked with what it learned.
            for replica, windows in world.rows("SELECT replica, blob FROM attribution_state"):
                seen = world.rows(
                    "SELECT count(*) FROM capacity_minutes WHERE replica = ? AND capacity_ns > 0",
                    (replica,),
                )
                assert seen[0][0] <= int(windows) <= 3 * seen[0][0]
        world.close()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_deaths_change_nothing_in_the_end(seed: int) -> None:
    """With all of it stored before, one that dies often books what one that never dies does."""
    tables = ("usage_hours", "usage_minutes", "capacity_hours", "capacity_minutes")
    found = []
    for deadly in (False, True):
        random, deaths = Random(seed), Random(seed + 1)
        with tempfile.TemporaryDirectory() as directory:
            world = UsageWorld(Path(directory))
            world.ends(*(any_request(random, number) for number in range(40)))
            for replica, begin, end, state, gpus in any_states(random):
                world.seen(begin, end, replica=replica, state=state, gpus=gpus)
            for _ in range(40 if deadly else 0):
                with dying(world, deaths.randrange(80)):
                    world.settle(BEGIN_S + SPAN_S + 200)
            world.settle(BEGIN_S + SPAN_S + 200)
            check(world)
            assert world.attributor.settled_until_ns == at_ns(BEGIN_S + SPAN_S + 200)
            requests = world.rows("SELECT id, attributed_ns, booked FROM requests ORDER BY id")
            found.append([requests] + [world.rows(f"SELECT * FROM {table}") for table in tables])
            world.close()
    assert found[0] == found[1]


def test_a_mortal_connection_dies(tmp_path: Path) -> None:
    world = UsageWorld(tmp_path)
    world.seen(0, 20)
    before = world.store
    with dying(world, 3):
        world.settle(20)
    assert world.store is not before
    with pytest.raises(Killed):
        before.insert(RowBatch())
    world.close()
