"""MPS of a launch, against a program that takes the same commands as NVIDIA's: no GPU is here."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from mileage.core.errors import ConfigError, EngineError
from mileage.engines.launch.mps import start_mps
from tests.support.gateway import run_mileage, wait_until
from tests.support.launching import ENGINE, Launching

CONTROL = "nvidia-cuda-mps-control"


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The stand-in, on the path under the name of the program."""
    program = tmp_path / "bin" / CONTROL
    program.parent.mkdir()
    script = Path(__file__).parents[2] / "support" / "mps_control.py"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return str(program)


def test_the_daemon_lives_as_long_as_the_engine(tmp_path: Path, control: str) -> None:
    seen, log = tmp_path / "environment", tmp_path / "log"
    options = ("--mps", "--mps-active-thread-percentage", "40", "--mps-log-dir", str(log))
    words = (*ENGINE, "--port", "{port}", "--environment", str(seen))
    with Launching(
        tmp_path, "command", "--port", "0", "--warm", "1x1", *options, "--", *words
    ) as launching:
        launching.event("ready")
        environment = json.loads(seen.read_text())
        pipe = Path(environment["CUDA_MPS_PIPE_DIRECTORY"])
        assert environment["CUDA_MPS_LOG_DIRECTORY"] == str(log)
        assert environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "40"
        assert (pipe / "control.pid").exists()
        launching.signal(signal.SIGTERM)
        assert launching.wait() == 0
    assert (log / "commands").read_text() == "quit\n"
    assert not pipe.parent.exists()


def test_a_restart_leaves_the_daemon_to_those_that_share_it(tmp_path: Path, control: str) -> None:
    pipe, log = tmp_path / "pipe", tmp_path / "log"
    options = ("--mps", "--mps-pipe-dir", str(pipe), "--mps-log-dir", str(log))
    quick = ("--port", "0", "--warm", "1x1", "--restart-backoff-s", "0.01")
    fails = ("--starts", str(tmp_path / "starts"), "--exit", "3", "--exits", "1")
    words = (*ENGINE, "--port", "{port}", *fails)
    with Launching(tmp_path, "command", *quick, *options, "--", *words) as launching:
        launching.event("ready")
        assert launching.event("ended")["exit_code"] == 3
        assert (log / "commands").read_text() == "get_server_list\n"
        launching.signal(signal.SIGKILL)
        launching.wait()
        wait_until(lambda: not (pipe / "control.pid").exists(), "the daemon has ended")
    assert (log / "commands").read_text() == "get_server_list\nquit\n"


def test_the_last_of_those_that_share_the_daemon_ends_it(tmp_path: Path, control: str) -> None:
    pipe, log = tmp_path / "pipe", tmp_path / "log"
    options = ("--mps", "--mps-pipe-dir", str(pipe), "--mps-log-dir", str(log))
    words = ("--port", "0", "--warm", "1x1", *options, "--", *ENGINE, "--port", "{port}")
    places = [tmp_path / name for name in ("first", "second")]
    for place in places:
        place.mkdir()
    with (
        Launching(places[0], "command", *words) as first,
        Launching(places[1], "command", *words) as second,  # at once
    ):
        for each in (first, second):
            each.event("ready")
        first.signal(signal.SIGTERM)
        assert first.wait() == 0
        assert (pipe / "control.pid").exists()
        assert "quit" not in (log / "commands").read_text()
        second.signal(signal.SIGKILL)
        second.wait()
        wait_until(lambda: not (pipe / "control.pid").exists(), "the daemon has ended")
    assert (log / "commands").read_text().count("quit") == 1


def test_a_daemon_of_somebody_else_is_left_running(tmp_path: Path, control: str) -> None:
    pipe, log = tmp_path / "pipe", tmp_path / "log"
    start_mps(pipe_directory=str(pipe), log_directory=str(log))
    options = ("--mps", "--mps-pipe-dir", str(pipe), "--mps-log-dir", str(log))
    words = ("--port", "0", "--warm", "1x1", *options, "--", *ENGINE, "--port", "{port}")
    with Launching(tmp_path, "command", *words) as launching:
        launching.event("ready")
        launching.signal(signal.SIGTERM)
        assert launching.wait() == 0
    assert (pipe / "control.pid").exists()
    assert "quit" not in (log / "commands").read_text()


def test_a_daemon_that_runs_is_used_and_left_alone(tmp_path: Path, control: str) -> None:
    pipe, log = str(tmp_path / "pipe"), str(tmp_path / "log")
    first = start_mps(pipe_directory=pipe, log_directory=log)
    second = start_mps(pipe_directory=pipe, log_directory=log, active_thread_percentage=50)
    assert first.started
    assert first.at_end.text == "quit\n"
    assert not second.started
    assert second.environment["CUDA_MPS_PIPE_DIRECTORY"] == pipe
    assert (tmp_path / "log" / "commands").read_text() == "get_server_list\n"


def test_a_daemon_that_does_not_start(tmp_path: Path, control: str) -> None:
    (tmp_path / "pipe" / "broken").mkdir(parents=True)
    with pytest.raises(EngineError, match=r"did not start.*Cannot find MPS control"):
        start_mps(pipe_directory=str(tmp_path / "pipe"))


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"active_thread_percentage": 0}, "--mps-active-thread-percentage"),
        ({"active_thread_percentage": 101}, "--mps-active-thread-percentage"),
        ({"pipe_directory": "/tmp/" + "p" * 90}, "--mps-pipe-dir"),
    ],
)
def test_bad_options(options: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        start_mps(**options)  # type: ignore[arg-type]
    assert caught.value.key == key


def test_without_the_program(tmp_path: Path) -> None:
    command = ("engine", "launch", "command", "--port", "0", "--mps", "--", "true")
    ended = run_mileage(*command, state=tmp_path)
    assert ended.returncode == 1
    assert f"{CONTROL}: is not on the path: it comes with NVIDIA's driver" in ended.stderr
