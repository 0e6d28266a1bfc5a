"""Writers and feeder killed with SIGKILL at any moment lose nothing that was acknowledged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import IO

import pytest

from mileage.core.errors import LedgerError
from mileage.storage.feeder import Feeder
from mileage.storage.queries import LedgerReader
from tests.integration.storage.ledger_child import end_of
from tests.support.ledger_directory import drain, segments, stored
from tests.support.ledger_records import request_id

ROUNDS = 6
WORKERS = 2
ROUND_S_MAX = 0.15

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(repository: Path) -> Iterator[Start]:
    """Starts children; whatever still runs at the end is killed."""
    children: list[subprocess.Popen[bytes]] = []

    def start(*arguments: object, stdout: int | IO[bytes]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.integration.storage.ledger_child"]
        child = subprocess.Popen(
            [*command, *map(str, arguments)], stdout=stdout, cwd=repository, start_new_session=True
        )
        children.append(child)
        return child

    yield start
    for child in children:
        kill_child(child)


def kill_child(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGKILL)
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


def wait_until_written(path: Path, size_bytes: int, timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while path.stat().st_size < size_bytes:
        assert time.monotonic() < deadline_s, f"{path} does not grow"
        time.sleep(0.005)


def acknowledged(path: Path, kind: str) -> set[int]:
    lines = path.read_text().split("\n")[:-1]
    return {int(line[2:]) for line in lines if line.startswith(kind)}


def test_no_acknowledged_end_is_lost_and_every_open_request_is_found(
    tmp_path: Path, start: Start
) -> None:
    random = Random(20)
    directory = tmp_path / "ledger"
    said: dict[tuple[int, int], Path] = {}
    for round_ in range(ROUNDS):
        feeder = start("feed", directory, stdout=subprocess.PIPE)
        assert feeder.stdout is not None
        assert feeder.stdout.readline() == b"ready\n"
        writers = []
        for worker in range(WORKERS):
            path = said[round_, worker] = tmp_path / f"said-{round_}-{worker}"
            with path.open("wb") as file:
                writers.append(start("write", directory, worker, round_, stdout=file))
        for worker in range(WORKERS):
            wait_until_written(said[round_, worker], random.randrange(100, 50_000))
        time.sleep(random.uniform(0, ROUND_S_MAX))
        for child in random.sample([feeder, *writers], WORKERS + 1):
            kill_child(child)
            time.sleep(random.uniform(0, 0.01))

    final = Feeder(directory)
    drain(final)
    status = final.status()
    final.stop()
    found = stored(directory)
    begun = 0
    for (_, worker), path in said.items():
        intents, ends = acknowledged(path, "i"), acknowledged(path, "f")
        begun += len(intents)
        for number in ends:
            assert found[request_id(number, worker)] == end_of(number, worker)
        for number in intents - ends:
            # Not acknowledged in time to be read here: the end may have got through all the same.
            row = found[request_id(number, worker)]
            assert row.outcome == "lost" or row == end_of(number, worker)
    # One more request per killed writer may be on record than it lived to tell.
    assert begun <= len(found) <= begun + ROUNDS * WORKERS
    assert begun > 1000
    lost = sum(row.outcome == "lost" for row in found.values())
    assert lost >= ROUNDS * WORKERS
    assert segments(directory) == []
    assert (status.damaged_total, status.conflicting_total, status.refused_total) == (0, 0, 0)
    with closing(LedgerReader(directory)) as reader:
        assert reader.verify() == []


def test_a_second_gateway_is_told_the_pid_of_the_first_until_that_is_killed(
    tmp_path: Path, start: Start
) -> None:
    first = start("feed", tmp_path, stdout=subprocess.PIPE)
    assert first.stdout is not None
    assert first.stdout.readline() == b"ready\n"
    with pytest.raises(LedgerError, match=rf"{tmp_path}: .*\(pid {first.pid}\)"):
        Feeder(tmp_path)
    kill_child(first)
    Feeder(tmp_path).stop()
    assert os.listdir(tmp_path / "log") == []
