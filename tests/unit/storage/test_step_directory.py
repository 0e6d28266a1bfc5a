"""Steps of engines are found for the windows that they overlap, whatever the files are like."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mileage.core.errors import LedgerError
from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.engine_step import EngineStep, StepUse
from mileage.ledger.replica_attribution import ReplicaAttribution
from mileage.ledger.step_record import STEP_LENGTH, lost_record, step_record
from mileage.storage.step_directory import KEPT_S, StepDirectory, begin_step_directory
from tests.support.usage_world import UsageWorld, at_ns, ran

_NS = 1_000_000_000


def step(begin: float, lasted: float, *ids: int, replica: str = "a") -> EngineStep:
    uses = tuple(StepUse(request_id, 0, 1, 100) for request_id in ids)
    return EngineStep(replica, at_ns(begin), round(lasted * _NS), uses)


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[StepDirectory]:
    directory = StepDirectory(tmp_path)
    yield directory
    directory.close()


def write(path: Path, *records: EngineStep | bytes) -> None:
    with path.open("ab") as file:
        for record in records:
            file.write(record if isinstance(record, bytes) else step_record(record))


def found(steps: StepDirectory, begin: float, end: float, replica: str = "a") -> list[float]:
    """When the window's steps began, in seconds of the hour."""
    told = steps.totals(replica, at_ns(begin), at_ns(end))
    assert (told.busy_ns, told.step_count) == (None, None)
    return [(one.started_at_utc_ns - at_ns(0)) / _NS for one in told.steps]


def test_a_step_is_in_each_window_that_it_overlaps(steps: StepDirectory, tmp_path: Path) -> None:
    write(tmp_path / "x.steps", step(1, 2), step(19, 2), step(25, 1), step(45, 1))
    assert found(steps, 0, 20) == [1, 19]
    steps.settled("a", at_ns(20))
    assert found(steps, 20, 40) == [19, 25]
    assert found(steps, 20, 40) == [19, 25]
    steps.settled("a", at_ns(40))
    assert found(steps, 40, 60) == [45]


def test_replicas_and_files_are_told_apart_and_put_together(
    steps: StepDirectory, tmp_path: Path
) -> None:
    write(tmp_path / "x.steps", step(2, 1), step(3, 1, replica="b"))
    write(tmp_path / "y.steps", step(1, 1))
    (tmp_path / "notes.txt").write_text("no steps")
    assert found(steps, 0, 20) == [1, 2]
    assert found(steps, 0, 20, "b") == [3]


def test_what_is_appended_later_is_read_then(steps: StepDirectory, tmp_path: Path) -> None:
    path = tmp_path / "x.steps"
    assert found(steps, 0, 20) == []
    record = step_record(step(21, 1, 7))
    write(path, step(1, 1), record[:10])
    assert found(steps, 20, 40) == []
    write(path, record[10:], step(41, 1))
    assert found(steps, 40, 60) == [41]
    assert found(steps, 20, 40) == [21]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(STEP_LENGTH.pack(1 << 30), id="a length that no step has"),
        pytest.param(STEP_LENGTH.pack(3) + b"abc", id="no step"),
    ],
)
def test_damage_hides_the_rest_of_its_file_only(
    steps: StepDirectory, tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "x.steps", step(1, 1), damage, step(2, 1))
    write(tmp_path / "y.steps", step(3, 1))
    assert found(steps, 0, 20) == [1, 3]
    assert found(steps, 20, 40) == []
    assert len(caplog.records) == 1
    assert "x.steps" in caplog.text


def test_steps_that_no_window_asks_for_are_given_up_from_the_oldest(
    steps: StepDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mileage.storage.step_directory.USES_MAX", 10)
    write(tmp_path / "x.steps", *(step(n, 1, 1, replica="b") for n in range(20)))
    write(tmp_path / "y.steps", step(50, 1, 1))
    assert found(steps, 40, 60) == [50]
    assert found(steps, 0, 20, "b") == []
    assert found(steps, 16, 20, "b") == [16, 17, 18, 19]


def test_a_file_that_nobody_writes_to_any_more_is_deleted(
    steps: StepDirectory, tmp_path: Path
) -> None:
    old, live = tmp_path / "x.steps", tmp_path / "y.steps"
    for path in (old, live):
        write(path, step(1, 1))
    os.utime(old, (at_ns(0) / _NS, at_ns(0) / _NS))
    os.utime(live, (at_ns(KEPT_S) / _NS, at_ns(KEPT_S) / _NS))
    assert found(steps, 0, 20) == [1, 1]
    assert found(steps, KEPT_S + 20, KEPT_S + 40) == []
    assert (old.exists(), live.exists()) == (False, True)


def test_steps_of_requests_that_are_not_on_record_are_nobodys(tmp_path: Path) -> None:
    directory = StepDirectory(tmp_path / "steps")
    world = UsageWorld(
        tmp_path,
        sharing=lambda replica: ReplicaAttribution(replica, AttributionConfig()),
        steps=directory,
    )
    (tmp_path / "steps").mkdir()
    known = ran(0, 1, 10)
    write(tmp_path / "steps" / "a.steps", step(2, 4, known.id), step(8, 6, known.id, 99))
    world.seen(0, 20)
    world.ends(known)
    world.settle(20)
    rows = world.rows("SELECT tenant, requests, gpu_ns FROM usage_hours ORDER BY tenant")
    assert rows == [("", 0, 3 * _NS), ("team-0", 1, 7 * _NS)]
    assert world.rows("SELECT idle_ns FROM capacity_hours") == [(10 * _NS,)]
    assert world.verdict().problems == []
    directory.close()
    world.close()


def test_a_window_in_which_steps_were_lost_has_none(steps: StepDirectory, tmp_path: Path) -> None:
    lost = lost_record("a", at_ns(22), at_ns(23), 3)
    write(tmp_path / "x.steps", step(1, 1), step(21, 1), lost, step(24, 1), step(41, 1))
    assert found(steps, 0, 20) == [1]
    assert found(steps, 20, 40) == []
    assert found(steps, 40, 60) == [41]
    assert (steps.steps_total, steps.lost_total) == (4, 3)
    steps.settled("a", at_ns(40))
    assert found(steps, 40, 60) == [41]


def test_what_a_killed_engine_left_is_read_and_that_of_the_next_one(
    steps: StepDirectory, tmp_path: Path
) -> None:
    write(tmp_path / "a-1.steps", step(1, 1), step_record(step(3, 1, 7))[:-2])
    write(tmp_path / "a-2.steps", step(5, 1))
    assert found(steps, 0, 20) == [1, 5]
    assert found(steps, 20, 40) == []


def test_engines_are_told_whose_requests_they_can_name(tmp_path: Path) -> None:
    directory = tmp_path / "ledger" / "steps"
    for tag in ("01234567", "01234567", "76543210"):
        begin_step_directory(directory, tag)
        assert [path.read_text() for path in directory.iterdir()] == [f"{tag}\n"]
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="file"):
        begin_step_directory(tmp_path / "file" / "steps", "01234567")
