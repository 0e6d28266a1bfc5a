"""Verify: nothing to say of good books, and every change of one figure is found."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mileage.storage.sqlite import DATABASE_NAME
from mileage.storage.usage_reader import UsageReader
from tests.support.usage_world import UsageWorld, ran


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours of two replicas, with failures, and GPUs that are shared."""
    world = UsageWorld(tmp_path_factory.mktemp("books"))
    world.seen(0, 5000, gpus=0.3)
    world.seen(3000, 5000, replica="b", state="warmup")
    world.seen(5000, 5500, replica="b")
    outcomes = ("ok", "failed")
    world.ends(
        *(
            ran(n, n * 50, 70, replica="ab"[n % 2], outcome=outcomes[n % 7 == 0], cost_nano_usd=n)
            for n in range(100)
        )
    )
    world.settle(5500)
    world.close()
    return world.directory


def problems(directory: Path) -> list[str]:
    with closing(UsageReader(directory)) as reader:
        return reader.verify().problems


def test_good_books_are_proven_and_it_is_told_how_much_was_looked_at(books: Path) -> None:
    with closing(UsageReader(books)) as reader:
        verdict = reader.verify()
    assert verdict.problems == []
    assert (verdict.hours, verdict.hours_by_minute, verdict.accounts) == (4, 4, 6)
    assert (verdict.requests, verdict.requests_open) == (100, 0)
    assert verdict.gpu_ns > 0


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(
            "UPDATE usage_hours SET gpu_ns = gpu_ns + 1 WHERE tenant = 'team-1'",
            "usage, idle and warm-up time are",
            id="a nanosecond of usage too much",
        ),
        pytest.param(
            "UPDATE capacity_hours SET idle_ns = idle_ns - 1", "a capacity of", id="one lost"
        ),
        pytest.param(
            "UPDATE capacity_hours SET idle_ns = idle_ns + 1, capacity_ns = capacity_ns + 1",
            "differs from its minutes: capacity_ns by 1, idle_ns by 1",
            id="idle time that never was",
        ),
        pytest.param(
            "UPDATE usage_minutes SET charged_nano_usd = 1 + charged_nano_usd",
            "charged_nano_usd",
            id="a charge",
        ),
        pytest.param(
            "UPDATE replica_time SET until_utc_ns = until_utc_ns - 1000000000",
            "on record",
            id="a second in which nobody saw the replica",
        ),
        pytest.param(
            "UPDATE requests SET attributed_ns = attributed_ns + 1 WHERE attributed_ns > 0",
            "requests had",
            id="requests that had more",
        ),
        pytest.param(
            "UPDATE request_hours SET gpu_ns = gpu_ns + 1", "requests had", id="an hour had more"
        ),
        pytest.param(
            "DELETE FROM requests WHERE id = (SELECT max(id) FROM requests)",
            "tenant 'team-0' on replica 'b': hours and requests differ: requests 17 and 16",
            id="a request that is gone",
        ),
        pytest.param(
            "UPDATE requests SET prompt_tokens = prompt_tokens + 1",
            "prompt_tokens",
            id="tokens",
        ),
        pytest.param(
            "UPDATE usage_hours SET prefill_ns = gpu_ns + 1",
            "prefill_ns is more than gpu_ns",
            id="a part larger than the whole",
        ),
    ],
)
def test_a_changed_figure_is_found(books: Path, tmp_path: Path, change: str, problem: str) -> None:
    shutil.copy(books / DATABASE_NAME, tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME, isolation_level=None)) as connection:
        connection.execute(change)
    assert any(problem in sentence for sentence in problems(tmp_path)), problems(tmp_path)


def test_many_problems_of_a_kind_are_told_as_a_number(books: Path, tmp_path: Path) -> None:
    shutil.copy(books / DATABASE_NAME, tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME, isolation_level=None)) as connection:
        connection.execute("UPDATE usage_minutes SET labels = minute_at_utc_s")
    found = problems(tmp_path)
    assert len(found) == 21
    assert found[-1].endswith("more hours are not their minutes")
