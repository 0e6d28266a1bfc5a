"""Servers that are started for a measurement: they answer, and end with all that they started."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from mileage.core.errors import EngineError
from mileage.loadgen.launched_server import LaunchedServer, free_port
from mileage.wire.fetch import fetch

SERVER = [sys.executable, "-m", "tests.support.capacity_server"]


def launched(words: list[str], log: Path, port: int) -> LaunchedServer:
    server = LaunchedServer(words, variables={}, port=port, log=log)
    server.start()
    return server


def test_a_server_answers_and_ends(tmp_path: Path) -> None:
    port = free_port()
    server = launched([*SERVER, "--port", str(port)], tmp_path / "log", port)
    assert server.pid is not None
    process = psutil.Process(server.pid)
    try:
        asyncio.run(server.ready(fetch, timeout_s=60.0))
    finally:
        server.stop()
        server.stop()
    assert not process.is_running()


def test_its_descendants_end_too_also_when_it_has_ended_before(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    line = f"sleep 300 & echo $! > {pids}; exit 0"
    server = launched(["sh", "-c", line], tmp_path / "log", free_port())
    with pytest.raises(EngineError, match="ended with 0 before it was ready"):
        asyncio.run(server.ready(fetch, timeout_s=60.0))
    left = psutil.Process(int(pids.read_text()))
    assert left.is_running()
    server.stop()
    assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE


def test_a_process_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "300"])
    try:
        server = launched(["sleep", "300"], tmp_path / "log", free_port())
        server.stop()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_the_last_output_of_a_server_that_ends_is_told(tmp_path: Path) -> None:
    server = launched(["sh", "-c", "echo no such model >&2; exit 3"], tmp_path / "log", free_port())
    with pytest.raises(EngineError, match=r"ended with 3 .* no such model"):
        asyncio.run(server.ready(fetch, timeout_s=60.0))
    server.stop()


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    server = launched(["sleep", "300"], tmp_path / "log", free_port())
    try:
        with pytest.raises(EngineError, match=r"not ready within 0\.3 s"):
            asyncio.run(server.ready(fetch, timeout_s=0.3))
    finally:
        server.stop()


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot be started"):
        launched(["/no/such/program"], tmp_path / "log", free_port())
