"""The pass: each window once, whatever happens; requests counted once; late ones break no sum."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mileage.core.errors import LedgerError
from mileage.storage.attributor import DARK_ROWS
from mileage.storage.migrations import MIGRATIONS, migrate
from mileage.storage.sqlite import DATABASE_NAME
from tests.support.usage_world import EvenSharing, UsageWorld, at_ns, ran

_NS = 1_000_000_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[UsageWorld]:
    world = UsageWorld(tmp_path)
    yield world
    world.close()


def hours(world: UsageWorld, columns: str) -> list[tuple[object, ...]]:
    return world.rows(f"SELECT {columns} FROM usage_hours ORDER BY hour_at_utc_s, replica, tenant")


def capacity(world: UsageWorld) -> list[tuple[object, ...]]:
    return world.rows(
        "SELECT replica, capacity_ns, idle_ns, warmup_ns, observed_ns, late_requests, late_ns "
        "FROM capacity_hours ORDER BY hour_at_utc_s, replica"
    )


def test_a_window_is_shared_out_and_adds_up(world: UsageWorld) -> None:
    world.seen(0, 10, state="warmup", gpus=2.0)
    world.seen(10, 20, gpus=2.0)
    world.ends(ran(0, 12, 5), ran(1, 13, 5, key="ci", labels="env=prod", outcome="failed"))
    world.settle(20)
    each = 5 * _NS
    assert world.rows(
        "SELECT attributed_ns, attributed_low_ns, attributed_high_ns, attributed_prefill_ns, "
        "attributed_recomputed_ns, booked FROM requests ORDER BY id"
    ) == [
        (each + 1, each // 2, 2 * each + 1, each // 2, each // 4, 2),
        (each, each // 2, 2 * each + 1, each // 2, each // 4, 2),
    ]
    assert capacity(world) == [("a", 40 * _NS, 10 * _NS - 1, 20 * _NS, 20 * _NS, 0, 0)]
    assert hours(
        world, "tenant, key, labels, requests, requests_failed, prompt_tokens, cached_tokens, "
        "output_tokens, gpu_ns, failed_ns, saturated_ns, charged_nano_usd",
    ) == [
        ("team-0", "", "", 1, 0, 100, 40, 7, each + 1, 0, 0, None),
        ("team-1", "ci", "env=prod", 1, 1, 100, 40, 7, each, each, 0, None),
    ]  # fmt: skip
    assert world.verdict().problems == []


def test_a_request_has_time_in_each_of_its_windows_and_counts_where_it_arrived(
    world: UsageWorld,
) -> None:
    world.seen(3560, 3660)
    world.ends(ran(0, 3590, 40))
    world.settle(3660)
    assert world.rows("SELECT attributed_ns, booked FROM requests") == [(30 * _NS + 9, 2)]
    # The windows from 3560 on are the first to fourth.
    assert hours(world, "hour_at_utc_s % 7200, requests, gpu_ns") == [
        (3600, 1, 10 * _NS + 2),
        (0, 0, 20 * _NS + 7),
    ]
    assert world.rows("SELECT count(*) FROM usage_minutes") == [(2,)]
    assert world.verdict().problems == []


def test_what_waited_in_the_gateway_ran_when_it_was_dispatched(world: UsageWorld) -> None:
    world.seen(0, 60)
    world.ends(ran(0, 1, 50, dispatched_s=45.0))
    world.settle(40)
    assert world.rows("SELECT attributed_ns, booked FROM requests") == [(None, 0)]
    world.settle(60)
    assert world.rows("SELECT attributed_ns, booked FROM requests") == [(10 * _NS + 3, 2)]


@pytest.mark.parametrize(
    ("changes", "replica"),
    [
        pytest.param({"replica": None, "outcome": "rejected"}, "", id="rejected by the gateway"),
        pytest.param({"replica": ""}, "", id="no name of a replica"),
        pytest.param({"outcome": "failed"}, "a", id="failed on the way to the engine"),
    ],
)
def test_requests_that_never_ran_are_counted_and_have_no_time(
    world: UsageWorld, changes: dict[str, str], replica: str
) -> None:
    world.seen(0, 20)
    world.ends(ran(0, 5, None, **changes))
    world.settle(20)
    assert world.rows("SELECT attributed_ns, booked FROM requests") == [(None, 2)]
    assert hours(world, "replica, requests, gpu_ns") == [(replica, 1, 0)]


def test_time_in_which_nobody_saw_the_replica_is_no_capacity(world: UsageWorld) -> None:
    world.seen(0, 20)
    world.seen(1000, 1030)
    world.ends(ran(0, 5, 10), ran(1, 500, 10), ran(2, 990, 30))
    steps = world.settle(1040)
    assert steps < 10
    assert world.rows("SELECT attributed_ns, booked FROM requests ORDER BY id") == [
        (10 * _NS + 1, 2),
        (None, 2),
        (10 * _NS + 2, 2),
    ]
    assert capacity(world) == [("a", 50 * _NS, 30 * _NS - 3, 0, 50 * _NS, 0, 0)]


def test_a_request_that_comes_after_its_window_is_counted_and_breaks_no_sum(
    world: UsageWorld,
) -> None:
    world.seen(0, 40)
    world.settle(20)
    world.ends(ran(0, 15, 10, key="late"), ran(1, 1, 5))
    world.settle(40)
    assert world.rows("SELECT attributed_ns, booked FROM requests ORDER BY arrived_at_utc_ns") == [
        (None, 2),
        (10 * _NS + 2, 2),
    ]
    assert capacity(world) == [("a", 40 * _NS, 30 * _NS - 2, 0, 40 * _NS, 2, 10 * _NS)]
    assert world.verdict().problems == []


def test_a_replica_time_that_comes_after_its_window_is_cut(world: UsageWorld) -> None:
    world.seen(0, 10)
    world.settle(20)
    world.seen(10, 30)
    world.settle(40)
    assert capacity(world) == [("a", 20 * _NS, 20 * _NS, 0, 20 * _NS, 0, 0)]
    assert world.verdict().problems == []


def test_a_request_that_seems_to_end_in_the_future_is_done(world: UsageWorld) -> None:
    world.seen(0, 40)
    world.ends(ran(0, 5, 1e6))
    world.settle(40)
    assert world.rows("SELECT attributed_ns, booked FROM requests") == [(10 * _NS + 1, 2)]


def test_a_failure_of_one_replica_changes_nothing_and_holds_no_other(world: UsageWorld) -> None:
    failing: list[EvenSharing] = []

    def sharing(replica: str) -> EvenSharing:
        one = EvenSharing(replica)
        one.fail = replica == "a" and not failing
        failing.append(one)
        return one

    world.close()
    world = UsageWorld(world.directory, sharing=sharing)
    for replica in ("a", "b"):
        world.seen(0, 20, replica=replica)
        world.ends(ran(ord(replica), 5, 10, replica=replica))
    world.attributor.store_times()
    assert world.attributor.step(at_ns(40), at_ns(60))
    with pytest.raises(ZeroDivisionError):
        world.attributor.step(at_ns(40), at_ns(60))
    assert world.attributor.failed
    assert capacity(world) == []
    assert world.settle(40) > 0
    assert [row[:2] for row in capacity(world)] == [("a", 20 * _NS), ("b", 20 * _NS)]
    assert world.attributor.settled_until_ns == at_ns(40)
    world.close()


def test_shares_that_do_not_add_up_are_an_error_that_names_the_window(tmp_path: Path) -> None:
    class Wrong(EvenSharing):
        def window(self, *args: int, **kwargs: object) -> object:  # type: ignore[override]
            shares = super().window(*args, **kwargs)  # type: ignore[arg-type]
            return type(shares)(**{f: getattr(shares, f) for f in shares.__struct_fields__}
                                | {"idle_ns": 1})  # fmt: skip

    world = UsageWorld(tmp_path, sharing=Wrong)
    world.seen(0, 20)
    with pytest.raises(LedgerError, match=f"replica a, window at {at_ns(0)}"):
        world.settle(20)
    world.close()


def test_a_long_dark_time_is_booked_in_bounded_steps(world: UsageWorld) -> None:
    world.ends(*(ran(n, n * 0.01, 0.005) for n in range(DARK_ROWS + 2000)))
    world.ends(*(ran(n + 1, n * 0.01, None, replica=None) for n in range(DARK_ROWS + 10)))
    assert world.settle(3000) >= 4
    assert world.rows("SELECT count(*) FROM requests WHERE booked < 2") == [(0,)]
    assert world.verdict().problems == []


def test_texts_beyond_the_bound_of_an_hour_are_folded(
    world: UsageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mileage.storage.usage_tables.COMBINATIONS_MAX", 5)
    world.seen(0, 60)
    for turn in range(3):
        start = turn * 20
        world.ends(
            *(ran(n, start + 1, 5, labels=f"job={n}") for n in range(turn * 10, turn * 10 + 10))
        )
        world.settle(start + 20)
        world.close()
        world.open()
    labels = [row[0] for row in world.rows("SELECT labels FROM usage_hours")]
    assert labels.count("(more)") == 3
    assert len(labels) == 8
    assert world.rows("SELECT sum(requests) FROM usage_hours") == [(30,)]
    assert world.verdict().problems == []


def test_a_model_that_is_called_like_what_is_folded_keeps_books_of_its_own(
    world: UsageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mileage.storage.usage_tables.COMBINATIONS_MAX", 3)
    world.seen(0, 20)
    texts = ("(more)", "\\(more)", "small", "large")
    world.ends(*(ran(n, n + 1, 5, model=text, tenant="t") for n, text in enumerate(texts)))
    world.settle(20)
    booked = [str(row[0]) for row in world.rows("SELECT model FROM usage_hours")]
    assert sorted(booked) == ["(more)", "\\(more)", "\\\\(more)", "small"]
    assert world.verdict().problems == []


def test_requests_of_a_ledger_from_before_are_counted_without_gpu_time(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME, isolation_level=None)) as connection:
        migrate(connection, "db", MIGRATIONS[:3])
        connection.executemany(
            "INSERT INTO requests (id, tenant, model, endpoint, stream, arrived_at_utc_ns, "
            "outcome, attempts, replica, dispatched_s, finished_s) "
            "VALUES (?, 'old', 'm', 'chat', 0, ?, 'ok', 1, 'a', 0.0, 1.5)",
            [(n, at_ns(n * 10)) for n in range(500)],
        )
    world = UsageWorld(tmp_path)
    world.seen(86_400, 86_440)
    world.ends(ran(0, 86_405, 5))
    world.settle(86_440)
    assert world.rows("SELECT tenant, sum(requests), sum(gpu_ns) FROM usage_hours GROUP BY 1") == [
        ("old", 500, 0),
        ("team-0", 1, 10 * _NS + 1),
    ]
    assert world.rows("SELECT DISTINCT attributed_ns FROM requests WHERE tenant = 'old'") == [
        (None,)
    ]
    assert world.verdict().problems == []
    world.close()
