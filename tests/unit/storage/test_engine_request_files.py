"""What engines wrote of requests is beside their rows, once, whatever the files are like."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mileage.cli.whole_command import app
from mileage.ledger.engine_request import EngineRequest, lost_requests_record, request_record
from mileage.ledger.step_record import STEP_LENGTH
from mileage.storage.engine_request_files import EngineRequestFiles
from mileage.storage.engine_requests import EngineFigures, engine_figures
from mileage.storage.feeder import Feeder
from mileage.storage.log import LogWriter
from mileage.storage.retention import Retention
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore
from mileage.storage.step_directory import KEPT_S
from tests.support.ledger_directory import drain
from tests.support.ledger_records import BASE_UTC_NS, request_id, store_ends, timeline

REPLICA = "127.0.0.1:9000"
NOW_NS = BASE_UTC_NS + 10**9


def record(number: int, queue_s: float | None = 0.25, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "replica": REPLICA,
        "ended_at_utc_ns": BASE_UTC_NS + number,
        "request_id": request_id(number),
        "queue_s": queue_s,
        "prefill_s": 0.5,
        "decode_s": 1.5,
        "prompt_tokens": 40,
        "cached_tokens": 32,
        "output_tokens": 7,
    }
    return request_record(EngineRequest(**{**fields, **changes}))


def nested_record() -> bytes:
    """One more field than there are, in which a list is in a list, and so on."""
    fields = record(2)[STEP_LENGTH.size :]
    data = bytes([fields[0] + 1]) + fields[1:] + b"\x91" * 3000 + b"\xc0"
    return STEP_LENGTH.pack(len(data)) + data


def listdir_fails(path: Path) -> list[str]:
    raise OSError(errno.EIO, "Input/output error")


class World:
    """A ledger's database and the files beside it."""

    def __init__(self, directory: Path) -> None:
        self.steps = directory / "steps"
        self.steps.mkdir()
        self.store = SqliteStore(directory / DATABASE_NAME)
        self.files = EngineRequestFiles(self.steps)
        store_ends(self.store, [timeline(number) for number in range(4)])

    def write(self, name: str, *records: bytes) -> Path:
        path = self.steps / name
        with path.open("ab") as file:
            file.write(b"".join(records))
        return path

    def read(self, now_utc_ns: int = NOW_NS) -> dict[int, EngineFigures]:
        """All that is known of the four requests, by their numbers, once all is read."""
        while self.files.store(self.store, now_utc_ns):
            pass
        with self.store.transaction() as connection:
            ids = [request_id(number) for number in range(4)]
            found = engine_figures(connection, ids)
        return {ids.index(each): figures for each, figures in found.items()}

    def count(self, table: str) -> int:
        with self.store.transaction() as connection:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.store.close()


def test_sequences_of_a_request_are_put_together(world: World) -> None:
    world.write("a@1.requests", record(1, 0.25), record(1, 0.75), record(2, None))
    world.write("b@1.requests", record(1, None, preemptions=2))
    assert world.read() == {
        1: EngineFigures(0.75, 0.5, 1.5, 120, 96, 21, 2, 3),
        2: EngineFigures(None, 0.5, 1.5, 40, 32, 7, 0, 1),
    }


def test_each_record_counts_once_whoever_reads_on(world: World) -> None:
    half = record(2)
    world.write("a@1.requests", record(1), half[:9])
    assert world.read()[1].sequences == 1
    world.files = EngineRequestFiles(world.steps)
    world.write("a@1.requests", half[9:])
    found = world.read()
    assert [found[number].sequences for number in (1, 2)] == [1, 1]


def test_what_another_replica_said_is_not_of_the_one_that_answered(world: World) -> None:
    world.write("a@1.requests", record(1, 9.0, replica="broken"), record(1))
    assert world.read()[1].queue_s == 0.25


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff\xff\xff\xff",
        b"\x03\x00\x00\x00abc",
        b"\x02\x00\x00\x00\x91\x07",
        nested_record(),
    ],
    ids=["too long", "no MessagePack", "other fields", "lists in lists behind the fields"],
)
def test_damage_hides_the_rest_of_its_file_only(world: World, damage: bytes) -> None:
    world.write("a@1.requests", record(1), damage, record(2))
    world.write("b@1.requests", record(3))
    assert set(world.read()) == {1, 3}
    assert world.files.error is None


def test_a_file_that_cannot_be_opened_once_is_read_then(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = world.write("a@1.requests", record(1), record(2))
    os.utime(path, (1.0, 1.0))  # as old as what is deleted once it is read
    world.write("b@1.requests", record(3))
    opened = Path.open

    def fail(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self == path:
            raise OSError(errno.EMFILE, "Too many open files")
        return opened(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", fail)
        assert set(world.read()) == {3}
        assert "a@1.requests: Too many open files" in str(world.files.error)
        assert set(world.read()) == {3}
    assert len(caplog.messages) == 1
    assert path.exists()
    assert set(world.read()) == {1, 2, 3}
    assert world.files.error is None


def test_what_cannot_be_seen_for_a_while_counts_once_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.write("a@1.requests", record(1))
    world.read()
    stat = Path.stat

    def fail(self: Path, **kwargs: Any) -> os.stat_result:
        if self == path:
            raise OSError(errno.EIO, "Input/output error")
        return stat(self, **kwargs)

    broken: list[tuple[object, str, object]] = [
        (os, "listdir", listdir_fails),
        (Path, "stat", fail),
    ]
    for target, name, value in broken:
        with monkeypatch.context() as patch:
            patch.setattr(target, name, value)
            world.read()
            assert "Input/output error" in str(world.files.error)
        assert world.read()[1].sequences == 1
        assert world.files.error is None


def test_a_file_in_the_place_of_the_directory_keeps_nobody_from_his_turn(tmp_path: Path) -> None:
    (tmp_path / "steps").write_text("a file")
    feeder = Feeder(tmp_path)
    try:
        drain(feeder)
        assert "Not a directory" in str(feeder.status().engine_requests_error)
    finally:
        feeder.stop()


def test_what_no_database_can_hold_is_left_out(world: World) -> None:
    world.write(
        "a@1.requests",
        record(1, float("inf"), prompt_tokens=1 << 63, ended_at_utc_ns=-5),
        record(2, request_id=(1 << 64) - 1),
    )
    found = world.read()
    assert set(found) == {1}
    assert found[1].queue_s is None


def test_lost_records_are_counted(world: World) -> None:
    world.write("a@1.requests", lost_requests_record(REPLICA, 1, 2, 5), record(1))
    world.read()
    assert (world.files.requests_total, world.files.lost_total) == (1, 5)


def test_files_of_yesterday_go_and_are_forgotten(world: World) -> None:
    path = world.write("a@1.requests", record(1), record(2)[:9])
    old_s = NOW_NS / 1e9 - KEPT_S - 1
    os.utime(path, (old_s, old_s))
    world.read()
    assert not path.exists()
    assert world.read()[1].queue_s == 0.25
    assert world.count("engine_request_files") == 0


def test_they_are_deleted_with_their_requests(world: World) -> None:
    world.write("a@1.requests", record(1), record(99))
    world.read()
    Retention(world.store, booked_only=False).step(BASE_UTC_NS + 7200 * 10**9)
    assert (world.count("requests"), world.count("engine_requests")) == (0, 0)


def test_a_gateways_ledger_knows_how_long_its_engine_let_a_request_wait(
    tmp_path: Path, open_writer: Callable[..., LogWriter]
) -> None:
    """Through the feeder to what `mileage requests` shows; the record comes before its request."""
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "a@1.requests").write_bytes(record(1))
    with closing(open_writer()) as writer:
        feeder = Feeder(tmp_path)
        try:
            drain(feeder)
            for number in range(2):
                writer.finish(timeline(number))
            drain(feeder)
            status = feeder.status()
        finally:
            feeder.stop()
    assert (status.engine_requests_total, status.engine_requests_lost_total) == (1, 0)
    asked = ["requests", "--ledger", str(tmp_path)]
    printed = CliRunner().invoke(app, [*asked, "--json"]).stdout
    told = {each["id"]: each for each in json.loads(printed)["requests"]}
    assert told[request_id(1)]["engine_queue_s"] == 0.25
    assert told[request_id(1)]["engine_cached_tokens"] == 32
    assert told[request_id(0)]["engine_queue_s"] is None
    assert "250.0" in CliRunner(env={"COLUMNS": "200"}).invoke(app, asked).stdout
