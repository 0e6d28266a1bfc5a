"""Databases of Nsight Systems: timelines, calls of several processes, broken rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mileage.core.errors import TraceError
from mileage.scrape.profile_export import read_profile

TABLES = """
CREATE TABLE StringIds (id INTEGER, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL
  (start, end, deviceId, streamId, correlationId, globalPid, demangledName);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY
  (start, end, deviceId, streamId, correlationId, globalPid, copyKind, bytes);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, correlationId, globalTid, nameId);
CREATE TABLE NVTX_EVENTS (start, end, text, textId);
INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'cudaGraphLaunch_v10000');
"""
PID = 5 << 24


def database(path: Path, *, steps: int = 4, bad: bool = False) -> Path:
    """Steps of 100 ns: 40 of a kernel, then 10 of a copy; another process has the same numbers."""
    with closing(sqlite3.connect(path)) as made:
        made.executescript(TABLES)
        for i in range(steps):
            at = 1000 + 100 * i
            made.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,0,7,?,?,1)",
                (at + 10, at + 50, i, PID),
            )
            made.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,0,8,?,?,2,64)",
                (at + 50, at + 60, i, PID),
            )
            for pid, when in ((PID + 9, at + 1), (6 << 24, 0)):
                made.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,2)",
                    (when, when + 1, i, pid),
                )
            made.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?,?,?,NULL)",
                (at, at + 90, "execute_context_0(0)_generation_4(4)"),
            )
        if bad:
            made.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (9,1,0,0,0,0,1)")
        made.commit()
    return path


def test_a_database_is_a_timeline(tmp_path: Path) -> None:
    reading = read_profile(database(tmp_path / "run.sqlite"))
    signals = reading.facts["signals"]
    assert signals["step_time_s"] == pytest.approx(100e-9)
    assert signals["step_host_gap_s"] == pytest.approx(50e-9)
    assert signals["graph_replay_ratio"] == 1
    assert signals["gpu_util_ratio"] == pytest.approx(200 / 350)
    assert [(k.name, k.count) for k in reading.kernels] == [("gemm", 4)]
    assert "copy_d2h_ratio" in reading.figures


def test_a_broken_row_is_told_with_its_number(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"run.sqlite:5: row of CUPTI_ACTIVITY_KIND_KERNEL"):
        read_profile(database(tmp_path / "run.sqlite", bad=True))


def test_a_database_of_something_else_has_no_gpu(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE other (a)")
    assert "nothing of a GPU" in read_profile(path).notes[0]
