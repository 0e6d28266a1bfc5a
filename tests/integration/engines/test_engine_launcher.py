"""`mileage engine launch` as a process of its own: readiness, signals, what is left of it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.gateway import wait_until
from tests.support.launching import ENGINE, Launching


def test_ready_only_after_a_token(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    place = ("--ready-port", "0", "--ready-file", str(tmp_path / "ready"))
    words = (*ENGINE, "--port", "{port}", "--tokens", str(tokens), "--child", str(tmp_path / "c"))
    with Launching(tmp_path, "command", "--port", "0", *place, "--", *words) as launching:
        launching.event("up")
        wait_until(lambda: "readiness at port " in launching.log, "its port is told")
        port = launching.log.partition("readiness at port ")[2].partition(",")[0]
        url = f"http://127.0.0.1:{port}"
        answer = httpx.get(f"{url}/ready")
        assert (answer.status_code, answer.json()["state"]) == (503, "warming")
        assert httpx.get(f"{url}/live").status_code == 200
        assert httpx.get(f"{url}/other").status_code == 404
        assert not (tmp_path / "ready").exists()
        tokens.touch()
        launching.event("ready")
        wait_until(lambda: httpx.get(f"{url}/ready").status_code == 200, "ready")
        answer = httpx.get(f"{url}/ready")
        assert answer.json()["phases"]["server_up_s"] > 0
        assert answer.json()["model"] == "toy"
        assert [took["batch"] for took in answer.json()["warm"]] == [1, 1, 8]
        wait_until((tmp_path / "ready").exists, "the file is there")
        assert json.loads((tmp_path / "ready").read_text())["event"] == "ready"
        family = launching.family()
        assert len(family) == 3  # the keeper, the engine, its child
        launching.signal(signal.SIGTERM)
        assert launching.wait() == 0
        psutil.wait_procs(family, timeout=60)
        assert not any(process.is_running() for process in family)
        assert not (tmp_path / "ready").exists()


@pytest.mark.parametrize("closed", [False, True], ids=["stalled", "closed"])
def test_output_that_nobody_reads_holds_nothing_up(tmp_path: Path, closed: bool) -> None:
    (tmp_path / "log").write_text("a line of the engine's log\n" * 10_000)
    words = (*ENGINE, "--port", "{port}", "--log", str(tmp_path / "log"))
    options = ("--port", "0", "--warm", "1x1", "--", *words)
    unread, stderr = os.pipe()
    try:
        with Launching(tmp_path, "command", *options, stderr=stderr) as launching:
            os.close(stderr)
            if closed:
                os.close(unread)
            launching.event("ready")
            launching.signal(signal.SIGTERM)
            assert launching.wait() == 0
        assert launching.event("ended")["asked"]
    finally:
        if not closed:
            os.close(unread)


def test_the_ready_file_goes_when_the_engine_is_told_to_end(tmp_path: Path) -> None:
    file = tmp_path / "ready"
    place = ("--port", "0", "--warm", "1x1", "--ready-file", str(file), "--drain-s", "3600")
    words = (*ENGINE, "--port", "{port}", "--deaf")
    with Launching(tmp_path, "command", *place, "--", *words) as launching:
        launching.event("ready")
        wait_until(file.exists, "the file is there")
        launching.signal(signal.SIGTERM)
        wait_until(lambda: not file.exists(), "the file is gone")
        assert launching.running
        launching.signal(signal.SIGTERM)
        assert launching.wait() == 128 + signal.SIGKILL


def test_a_terminal_that_is_closed_ends_it_in_order(tmp_path: Path) -> None:
    file = tmp_path / "ready"
    place = ("--port", "0", "--warm", "1x1", "--ready-file", str(file))
    with Launching(tmp_path, "command", *place, "--", *ENGINE, "--port", "{port}") as launching:
        launching.event("ready")
        wait_until(file.exists, "the file is there")
        launching.signal(signal.SIGHUP)
        assert launching.wait() == 0
        assert launching.event("ended")["asked"]
        assert not file.exists()


def test_nohup_keeps_it_running(tmp_path: Path) -> None:
    quick = ("--port", "0", "--warm", "1x1", "--restart-backoff-s", "0.01")
    words = (*ENGINE, "--port", "{port}")
    with Launching(tmp_path, "command", *quick, "--", *words, ignored=signal.SIGHUP) as launching:
        launching.event("ready")
        launching.signal(signal.SIGHUP)
        for process in launching.family():
            process.kill()
        wait_until(lambda: launching.count("ready") == 2, "ready again", 60.0)
        launching.signal(signal.SIGTERM)
        assert launching.wait() == 0


def test_modules_of_the_working_directory_are_not_taken_for_ours(tmp_path: Path) -> None:
    for name in ("resource", "select", "psutil", "mileage"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')\n")
    place = ("--port", "0", "--warm", "1x1", "--", *ENGINE, "--port", "{port}")
    with Launching(tmp_path, "command", *place) as launching:
        launching.event("ready")
        launching.signal(signal.SIGTERM)
        assert launching.wait() == 0


def test_a_second_launch_with_the_same_ready_file_leaves_the_first_one_s(tmp_path: Path) -> None:
    file = tmp_path / "ready"
    place = ("--port", "0", "--warm", "1x1", "--ready-file", str(file))
    words = (*place, "--", *ENGINE, "--port", "{port}")
    (tmp_path / "second").mkdir()
    with Launching(tmp_path, "command", *words) as first:
        first.event("ready")
        wait_until(file.exists, "the file is there")
        with Launching(tmp_path / "second", "command", *words) as second:
            assert second.wait() == 2
            assert "another launch (pid" in second.log
        assert file.exists()


def test_a_killed_launcher_leaves_nothing(tmp_path: Path) -> None:
    words = (*ENGINE, "--port", "{port}", "--child", str(tmp_path / "child"), "--deaf")
    with Launching(tmp_path, "command", "--port", "0", "--", *words) as launching:
        launching.event("ready")
        family = launching.family()
        assert len(family) == 3
        launching.signal(signal.SIGKILL)
        launching.wait()
        _, alive = psutil.wait_procs(family, timeout=60)
        assert not alive, alive


def test_a_killed_keeper_leaves_nothing(tmp_path: Path) -> None:
    child = tmp_path / "child"
    words = (*ENGINE, "--port", "{port}", "--child", str(child), "--deaf")
    place = ("--port", "0", "--warm", "1x1", "--restarts", "0")
    with Launching(tmp_path, "command", *place, "--", *words) as launching:
        keeper = launching.event("started")["pid"]
        launching.event("ready")
        family = launching.family()
        assert len(family) == 3
        psutil.Process(keeper).kill()
        assert launching.wait() == 128 + signal.SIGKILL
        _, alive = psutil.wait_procs(family, timeout=60)
        assert not alive
        assert launching.event("ended")["exit_code"] == -signal.SIGKILL
