"""The command line before a full disk, and before a reader that leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")
MAIN = (sys.executable, "-m", "mileage.cli.main")
TRACE = "synthetic:rate=5,duration=10s"


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full on this machine")
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--version",), id="a line"),
        pytest.param(("trace", "describe", TRACE), id="a table"),
        pytest.param(("trace", "describe", TRACE, "--json"), id="a document"),
    ],
)
def test_a_full_disk_is_one_line_and_an_exit_code(arguments: tuple[str, ...]) -> None:
    with FULL.open("wb") as full:
        done = subprocess.run(
            [*MAIN, *arguments], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert done.returncode == 1
    said = done.stderr.decode().strip()
    assert said == "mileage: standard output: cannot be written (No space left on device)"


def test_a_reader_that_has_enough_is_not_an_error_to_tell() -> None:
    command = [*MAIN, "trace", "convert", "synthetic:rate=5000,duration=30s", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read().decode()
        assert process.wait(timeout=60) == 1
    assert "Traceback" not in said
