"""KernelTracer with a script in bpftrace's place: its life, and the ways in which it is refused."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mileage.scrape.host_ebpf_trace import KernelTracer

TRACES = """\
echo 'Attaching 6 probes...'
echo 'clock 1000000000'
echo 'queue {pid} 2000000000 5000000'
trap 'echo "off {pid} 4 3000000000 250000000"; exit 0' INT
while :; do sleep 0.02; done
"""


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """A shell that puts the tests into the background has SIGINT ignored, for what they start too,
    and a script, unlike bpftrace, cannot change that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def tracer(directory: Path, script: str) -> KernelTracer:
    path = directory / "bpftrace"
    path.write_text(f"#!/bin/sh\n{script.format(pid=os.getpid())}")
    path.chmod(0o755)
    return KernelTracer({"generator": [os.getpid()]}, command=str(path))


def test_it_traces_until_it_is_stopped(tmp_path: Path) -> None:
    made = tracer(tmp_path, TRACES)
    made.start()
    assert made.missing is None
    pauses = made.stop()
    assert [(p.cause, p.role, p.start_s) for p in pauses] == [
        ("run_queue", "generator", 2.0),
        ("stopped", "generator", 3.0),
    ]
    assert made.missing is None
    assert made.stop() == []


def test_without_bpftrace_it_says_so(tmp_path: Path) -> None:
    made = KernelTracer({"generator": [os.getpid()]}, command=str(tmp_path / "none"))
    made.start()
    assert made.missing == "bpftrace is not installed"
    assert made.stop() == []


@pytest.mark.parametrize(
    ("script", "why"),
    [
        pytest.param(
            "echo 'ERROR: bpftrace currently only supports running as the root user.' >&2; exit 1",
            "needs root",
            id="no permission",
        ),
        pytest.param("exit 3", "without a word", id="it ends"),
    ],
)
def test_a_refusal_is_told(tmp_path: Path, script: str, why: str) -> None:
    made = tracer(tmp_path, script)
    made.start()
    assert made.missing is not None
    assert why in made.missing
    assert made.stop() == []


def test_what_is_lost_is_told(tmp_path: Path) -> None:
    made = tracer(tmp_path, "echo 'Lost 9 events'\n" + TRACES)
    made.start()
    assert len(made.stop()) == 2
    assert made.missing == "not all: 9 events lost, 0 lines unread"
