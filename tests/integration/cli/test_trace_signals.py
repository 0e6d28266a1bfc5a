"""mileage trace as a process: what signals, closed pipes and full disks leave behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

from tests.support.traces import AZURE_FILE

COMMAND = [sys.executable, "-m", "mileage.cli.main", "trace"]
WITHIN_S = 60.0


def _as_from_a_terminal() -> None:
    """What runs under nohup ignores SIGHUP, and so would its children."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def start(
    *arguments: str | Path, stdout: IO[bytes] | int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
        preexec_fn=_as_from_a_terminal,
    )


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGTERM, 143, id="SIGTERM"),
        pytest.param(signal.SIGHUP, 129, id="SIGHUP"),
        pytest.param(signal.SIGINT, None, id="Ctrl-C"),
    ],
)
def test_a_conversion_that_is_ended_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, code: int | None
) -> None:
    (tmp_path / "out.csv").write_bytes(b"what was there")
    with start("convert", "-", tmp_path / "out.csv") as process:
        ends_s = time.monotonic() + WITHIN_S
        while len(list(tmp_path.iterdir())) < 2:  # until it has begun to write
            assert process.poll() is None
            assert time.monotonic() < ends_s
            time.sleep(0.01)
        process.send_signal(number)
        _, errors = process.communicate(timeout=WITHIN_S)
    assert process.returncode == code or (code is None and process.returncode)
    assert b"Traceback" not in errors
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert (tmp_path / "out.csv").read_bytes() == b"what was there"


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full here")
def test_a_full_disk_behind_stdout_is_told() -> None:
    with Path("/dev/full").open("wb") as full, start("convert", "-", "-", stdout=full) as process:
        _, errors = process.communicate(AZURE_FILE, timeout=WITHIN_S)
    assert process.returncode == 1
    assert b"standard output: cannot be written (No space left on device)" in errors
    assert b"Traceback" not in errors


def test_whoever_reads_may_have_enough() -> None:
    spec = "synthetic:rate=1000,requests=20000"
    with start("convert", spec, "-") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b'{"arrived_s"')
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 1
