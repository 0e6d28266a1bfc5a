"""The books of several gateways on PostgreSQL are those of one gateway on SQLite, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mileage.core.timeline import RequestTimeline
from mileage.ledger.replica_time import ReplicaTime
from mileage.storage.attributor import Attributor
from mileage.storage.open_ledger import open_ledger
from mileage.storage.postgres import PostgresStore
from mileage.storage.queries import LedgerReader
from mileage.storage.replica_times import ReplicaTimes
from mileage.storage.retention import Retention
from mileage.storage.usage_reader import UsageReader
from mileage.storage.usage_schema import USAGE_COLUMNS, USAGE_TEXTS
from mileage.storage.usage_verify import verify_usage
from tests.support.ledger_records import store_ends
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.usage_world import EvenSharing, UsageWorld, at_ns, ran

pytestmark = pytest.mark.heavy

_TABLES = {
    "requests": "id",
    "request_hours": "request_id, hour_at_utc_s",
    "replica_time": "replica, from_utc_ns",
    "usage_hours": f"hour_at_utc_s, {', '.join(USAGE_TEXTS)}",
    "usage_minutes": f"minute_at_utc_s, {', '.join(USAGE_TEXTS)}",
    "capacity_hours": "hour_at_utc_s, replica",
    "capacity_minutes": "minute_at_utc_s, replica",
    "settled": "replica",
    "retired": "replica, tenant",
    "kept_since": "kind",
}
_SECONDS = 4000


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


class Gateway:
    """One gateway's store and attribution pass, on the database that it shares."""

    def __init__(self, address: str, identity: str) -> None:
        self.store = PostgresStore(address, identity=identity)
        self.times = ReplicaTimes()
        self._number: int | None = None
        self.attributor = Attributor(self.store, EvenSharing, times=self.times)

    def turn(self, until: float) -> bool:
        """As the feeder does it: store what is known, and settle if nobody else does."""
        number = self.store.shared.lead()
        if number is None or number != self._number:
            self.attributor.forget()
        self._number = number
        self.times.forget()
        self.attributor.store_times()
        return number is not None and self.attributor.step(at_ns(until), at_ns(until + 15))


def _requests(random: Random) -> list[RequestTimeline]:
    found = []
    for number in range(300):
        arrived, lasted = random.uniform(0, _SECONDS - 100), random.choice([0.5, 3.0, 45.0, None])
        found.append(
            ran(
                number,
                arrived,
                lasted,
                replica=random.choice(["a", "b", None]) if lasted is None else random.choice("ab"),
                outcome=random.choice(["ok", "failed"]),
                labels=random.choice([None, "team=x", "team=y"]),
                adapter=random.choice([None, "lora"]),
                cost_nano_usd=random.choice([None, 70]),
                gpu_ns=5,
            )
        )
    return found


def _stretches(random: Random) -> list[ReplicaTime]:
    found = []
    for replica in "ab":
        at = random.uniform(0, 60)
        while at < _SECONDS:
            until = min(_SECONDS, at + random.uniform(1, 400))
            state: Any = random.choice(["up", "up", "warmup", "down"])
            found.append(
                ReplicaTime(replica, at_ns(at), at_ns(until), random.choice([1.0, 2.0]), "h", state)
            )
            at = until + random.choice([0.0, 0.0, 30.0])
    return sorted(found, key=lambda one: one.from_utc_ns)


def _dump(place: str | Path) -> dict[str, list[tuple[Any, ...]]]:
    _, connection = open_ledger(place)
    with closing(connection):
        return {
            table: [
                tuple(row)
                for row in connection.execute(f"SELECT * FROM {table} ORDER BY {order}").fetchall()
            ]
            for table, order in _TABLES.items()
        }


def test_two_gateways_that_take_turns_and_die_keep_the_same_books(
    server: PostgresServer, tmp_path: Path
) -> None:
    address, random = server.database("books"), Random(7)
    requests, stretches = _requests(random), _stretches(random)

    world = UsageWorld(tmp_path)
    world.times.note(stretches)
    world.ends(*requests)
    world.settle(_SECONDS)

    # The first one stores all rows: ids are then the same. Both have seen the same replicas.
    gateways = [Gateway(address, "0"), Gateway(address, "1")]
    store_ends(gateways[0].store, requests)
    for gateway in gateways:
        gateway.times.note(stretches)
    more, deaths = True, 0
    while more:
        turns = [gateway.turn(_SECONDS) for gateway in random.sample(gateways, 2)]
        more = any(turns)
        if deaths < 6 and random.random() < 0.02:
            deaths += 1
            index = random.randrange(2)
            gateways[index].store.close()
            gateways[index] = Gateway(address, str(index))
            more = True
    assert deaths == 6
    assert _dump(address) == _dump(tmp_path)
    with closing(UsageReader(address)) as shared, closing(UsageReader(tmp_path)) as own:
        verdict = shared.verify()
        assert verdict.problems == []
        assert verdict == own.verify()
        since, until = at_ns(0) // 10**9, at_ns(_SECONDS + 600) // 10**9
        for by in (USAGE_TEXTS, ("tenant",), ("labels", "adapter")):
            assert list(shared.usage(since + 70, until, by=by)) == list(
                own.usage(since + 70, until, by=by)
            )
        assert list(shared.capacity(since, until)) == list(own.capacity(since, until))
        assert list(shared.requests(since, until)) == list(own.requests(since, until))
        assert shared.gaps(since, until) == own.gaps(since, until)
        assert shared.first_hour_utc_s() == own.first_hour_utc_s()
        assert shared.settled_until_utc_s() == own.settled_until_utc_s()
        assert shared.provisional(since, until) == own.provisional(since, until)
    with closing(LedgerReader(address)) as shared_reader, closing(LedgerReader(tmp_path)) as reader:
        assert list(shared_reader.by_arrival()) == list(reader.by_arrival())
        assert shared_reader.counts() == reader.counts()
        assert shared_reader.verify() == reader.verify() == []
        spent = {"since_utc_ns": 0, "before_utc_ns": at_ns(_SECONDS)}
        assert shared_reader.spent("team-1", **spent) == reader.spent("team-1", **spent)
        assert shared_reader.spent("team-1", **spent, gateway=1).tokens == 0

    for store in (gateways[0].store, world.store):
        retention = Retention(store, booked_only=True)
        while retention.step(at_ns(3700)):
            pass
    assert _dump(address) == _dump(tmp_path)
    assert len(_dump(address)["retired"]) > 3
    _, connection = open_ledger(address)
    with closing(connection):
        assert verify_usage(connection).problems == []
    for gateway in gateways:
        gateway.store.close()
    world.close()


def test_a_changed_figure_is_found(server: PostgresServer) -> None:
    address = server.database("changed")
    gateway = Gateway(address, "0")
    store_ends(gateway.store, _requests(Random(1)))
    gateway.times.note(_stretches(Random(1)))
    while gateway.turn(_SECONDS):
        pass
    with gateway.store.transaction() as connection:
        connection.execute(f"UPDATE usage_hours SET {USAGE_COLUMNS[5]} = {USAGE_COLUMNS[5]} + 1")
    gateway.store.close()
    with closing(UsageReader(address)) as reader:
        assert any("do not add up" in p or "idle" in p for p in reader.verify().problems)
