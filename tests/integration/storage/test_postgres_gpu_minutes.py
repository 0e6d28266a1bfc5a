"""Minutes of GPUs in a database that gateways share: two that read one exporter tell it once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from mileage.storage.gpu_minute_queue import GpuMinuteQueue
from mileage.storage.gpu_minutes import GpuMinute, read_gpu_minutes
from mileage.storage.postgres import PostgresStore
from tests.support.postgres import PostgresServer, postgres_server

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


def minute(at_s: int, gpu: str, mean: float = 0.5) -> GpuMinute:
    return GpuMinute(at_s, "n", gpu, "sm_active_ratio", mean, mean, 9)


def test_minutes_of_two_gateways_are_read_in_order_and_once(server: PostgresServer) -> None:
    address = server.database("minutes")
    told = {
        "one": [minute(120, "0"), minute(60, "0\0")],
        "two": [minute(120, "0", 0.9), minute(120, "1")],
    }
    for identity, rows in told.items():
        minutes = GpuMinuteQueue(pause_s=1.0, pause_max_s=1.0)
        minutes.note(rows)
        with closing(PostgresStore(address, identity=identity)) as store:
            assert not minutes.store(store, 0.0)
        assert (len(minutes), minutes.error) == (0, None)
    assert list(read_gpu_minutes(address, 0, 10**9, ["sm_active_ratio"])) == [
        minute(60, "0\N{REPLACEMENT CHARACTER}"),
        minute(120, "0"),
        minute(120, "1"),
    ]
    assert list(read_gpu_minutes(address, 61, 120, ["sm_active_ratio"])) == []
