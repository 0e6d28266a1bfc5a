"""mileage replay: exit codes, documents and tables, of whole, damaged and missing journals."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from mileage import __version__
from mileage.cli.whole_command import app
from mileage.control.config import ControlConfig
from mileage.control.controller import Controller
from mileage.control.snapshot import dump_state
from mileage.core.actions import Dispatch
from mileage.core.errors import ConfigError
from mileage.core.events import Arrived, Event, Finished, ReplicaUp
from mileage.storage.journal_writer import JournalWriter, new_header
from tests.support.journals import request


class Worker:
    """Writes a journal as a worker does; `lie` at that event about what the controller said."""

    def __init__(
        self, directory: Path, *, worker: int = 0, version: str = __version__, lie: int = -1
    ) -> None:
        config = ControlConfig()
        self.controller = Controller(("gpu-a",), config=config, random=Random(1))
        header = new_header(
            version=version,
            worker=worker,
            replicas=("gpu-a",),
            lacks={},
            config=msgspec.json.encode(config).decode(),
            seed=1,
        )
        self.writer = JournalWriter(
            directory, header, segment_bytes_max=1 << 16, bytes_max=1 << 24, clock=lambda: 100.0
        )
        self.writer.start(lambda: dump_state(self.controller))
        self.lie, self.count = lie, 0
        self.tell(ReplicaUp("gpu-a", ("llama",)))

    def tell(self, event: Event) -> None:
        now_s = 100.0 + 0.001 * self.count
        actions = tuple(self.controller.handle(event, now_s))
        if self.count == self.lie:
            actions = (Dispatch(7, "gpu-z"),)
        self.count += 1
        self.writer.handled(now_s, event, actions)

    def serve(self, requests: int) -> None:
        for number in range(requests):
            self.tell(Arrived(request(number, arrived_s=100.0 + 0.001 * self.count)))
            self.tell(Finished(number, 100, None, 20))


def write(directory: Path, requests: int = 20, **options: Any) -> None:
    worker = Worker(directory, **options)
    worker.serve(requests)
    worker.writer.close()


def run(*arguments: str | Path, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["replay", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def document(*arguments: str | Path, code: int = 0) -> Any:
    return json.loads(run("--json", *arguments, code=code).stdout)


def test_an_identical_replay(tmp_path: Path) -> None:
    write(tmp_path)
    report = document(tmp_path)
    assert report["identical"] is True
    assert report["records"] == 41
    (worker,) = report["workers"]
    assert worker["events"] == {"arrived": 20, "finished": 20, "replica_up": 1}
    assert worker["actions"]["dispatch"] == 20
    assert (worker["segments"], worker["restored"], worker["ending"]) == (1, 1, "stopped")
    output = run(tmp_path).output
    assert "identical: 41 records gave the same actions again" in output
    assert "stopped in order" in output


def test_segments_are_one_chain_or_each_by_itself(tmp_path: Path) -> None:
    write(tmp_path, requests=4000)
    chain, each = document(tmp_path)["workers"][0], document("--each", tmp_path)["workers"][0]
    assert chain["segments"] == each["segments"] >= 3
    assert (chain["restored"], each["restored"]) == (1, each["segments"])
    assert chain["records"] == each["records"] == 8001
    alone = document(tmp_path / "worker-0" / "000002.mjl")
    assert alone["identical"]
    assert 0 < alone["records"] < 8001


def test_a_gap_between_segments_is_bridged_by_the_next_state(tmp_path: Path) -> None:
    write(tmp_path, requests=4000)
    (tmp_path / "worker-0" / "000002.mjl").unlink()
    report = document(tmp_path)
    assert report["identical"]
    assert report["workers"][0]["restored"] == 2


def test_a_difference_is_shown_with_its_context(tmp_path: Path) -> None:
    write(tmp_path, lie=7, version="0.0.0")
    report = document(tmp_path, code=1)
    assert report["identical"] is False
    difference = report["workers"][0]["difference"]
    assert difference["record"]["number"] == 8
    assert difference["record"]["event"]["type"] == "arrived"
    assert difference["record"]["actions"] == [
        {"type": "dispatch", "request_id": 7, "replica": "gpu-z"}
    ]
    assert difference["actions"][0]["replica"] == "gpu-a"
    output = run(tmp_path, code=1).output
    assert "000001.mjl, record 8, at 100.007 s" in output
    assert "recorded  Dispatch(request_id=7, replica='gpu-z')" in output
    assert "replayed  Dispatch(request_id=3, replica='gpu-a')" in output
    assert f"written by version 0.0.0, this is {__version__}" in output


def test_one_workers_difference_does_not_hide_the_others(tmp_path: Path) -> None:
    write(tmp_path, lie=3)
    write(tmp_path, worker=1)
    first, second = document(tmp_path, code=1)["workers"]
    assert first["difference"] is not None
    assert (second["difference"], second["records"]) == (None, 41)


def test_a_damaged_file_is_named_and_the_next_one_is_replayed(tmp_path: Path) -> None:
    write(tmp_path, requests=4000)
    path = tmp_path / "worker-0" / "000002.mjl"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    report = document(tmp_path, code=1)
    (damage,) = report["damages"]
    assert damage["path"] == str(path)
    assert damage["record"] > 1
    assert report["workers"][0]["ending"] == "stopped"
    assert report["workers"][0]["difference"] is None
    assert f"damaged: {path}: record " in run(tmp_path, code=1).output


def test_a_journal_is_replayed_while_it_is_written(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    worker.serve(3)
    worker.writer.flush()
    report = document(tmp_path)
    assert (report["records"], report["workers"][0]["ending"]) == (7, "live")
    worker.writer.close()


def test_the_last_decisions_are_shown(tmp_path: Path) -> None:
    write(tmp_path)
    decisions = document("--show", "3", tmp_path)["decisions"]
    assert [d["record"]["event"]["request"]["id"] for d in decisions] == [17, 18, 19]
    output = run("--show", "2", tmp_path).output
    assert "arrived req-13 acme llama chat 100 tokens" in output
    assert "req-13 -> gpu-a" in output
    assert "req-11 -> gpu-a" not in output


def test_what_clients_send_cannot_control_the_terminal(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    worker.tell(Arrived(request(1, model="\x1b[2Jm")))
    worker.writer.close()
    output = run("--show", "1", tmp_path).output
    assert "\x1b" not in output
    assert "\\x1b[2Jm" in output


def test_nothing_to_replay(tmp_path: Path) -> None:
    assert "nothing to replay" in run(tmp_path, code=3).output
    Worker(tmp_path).writer._fd = -1
    assert "nothing to replay" in run(tmp_path / "worker-0" / "000001.mjl", code=3).output


def test_without_a_path_it_is_the_journal_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    run(code=3)
    write(tmp_path / "mileage" / "journal")
    assert document()["records"] == 41
    config = tmp_path / "mileage.toml"
    config.write_text(f'[journal]\ndirectory = "{tmp_path / "other"}"\n')
    run("--config", config, code=3)
    write(tmp_path / "other", requests=1)
    assert document("--config", config)["records"] == 3


@pytest.mark.parametrize("arguments", [["nowhere"], ["--what-if", "nowhere.toml"]])
def test_what_is_not_there_is_a_mistake_of_the_command_line(
    arguments: list[str], tmp_path: Path
) -> None:
    *options, name = arguments
    result = CliRunner().invoke(app, ["replay", *options, str(tmp_path / name)])
    assert isinstance(result.exception, ConfigError)
    assert name in str(result.exception)


def test_another_file_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (damage,) = document(tmp_path / "notes.txt", code=1)["damages"]
    assert "is no journal" in damage["message"]


def test_what_if_compares_two_configurations(tmp_path: Path) -> None:
    write(tmp_path / "journal", requests=200)
    other = tmp_path / "mileage.toml"
    other.write_text('[governor]\nmode = "off"\n')
    report = document("--what-if", other, tmp_path / "journal")
    assert report["records"] == 401
    result = report["workers"][0]["result"]
    assert result["recorded"]["arrived"] == result["estimated"]["arrived"] == 200
    assert result["estimated"]["sent"] == 200
    output = run("--what-if", other, tmp_path / "journal").output
    assert "sent to a replica" in output
    assert "An estimate" in output
