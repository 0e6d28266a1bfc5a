"""`mileage trace heatmap`: what it draws, where it refuses, and that nothing is left behind."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from mileage.cli.trace_heatmap import heatmap
from mileage.core.errors import ConfigError, TraceError
from mileage.measure.gpu_sample import GpuId, GpuSample
from mileage.measure.telemetry import Telemetry
from mileage.scrape.telemetry_file import telemetry_lines
from mileage.storage.gpu_minute_queue import GpuMinuteQueue
from mileage.storage.gpu_minutes import GpuMinute
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore

app = typer.Typer()
app.command()(heatmap)
NOW_MINUTE_S = int(time.time()) // 60 * 60


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def document(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output + result.stderr + repr(result.exception)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def minute(ago: int, gpu: str, field: str, mean: float) -> GpuMinute:
    return GpuMinute(NOW_MINUTE_S - 60 * ago, "node-1", gpu, field, mean, mean, 9)


def ledger_of(directory: Path, *rows: GpuMinute) -> Path:
    directory.mkdir()
    minutes = GpuMinuteQueue(pause_s=1.0, pause_max_s=1.0)
    minutes.note(rows)
    with closing(SqliteStore(directory / DATABASE_NAME)) as store:
        minutes.store(store, 0.0)
    return directory


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return ledger_of(
        tmp_path / "ledger",
        minute(1, "0", "sm_active_ratio", 0.25),
        minute(1, "0", "dram_active_ratio", 0.5),
        minute(3, "0", "sm_active_ratio", 0.75),
        minute(2, "1", "gpu_util_ratio", 1.0),
        minute(90, "2", "sm_active_ratio", 0.5),
    )


def test_minutes_of_the_ledger_are_cells(ledger: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.html"
    found = document(run("--ledger", ledger, "--out", out, "--json"))
    assert found["rows"] == ["node-1:0", "node-1:1"]
    assert (found["columns"], found["column_s"]) == (3, 60.0)
    # Two GPUs in three minutes: three cells have idle time, one has bandwidth.
    assert found["known_ratio"] == {"bandwidth": 1 / 6, "idle": 0.5}
    page = out.read_text()
    assert "node-1:0" in page
    assert "33%" in page  # idle: (0.75 + 0.25 + 0) / 3


def test_since_chooses_the_minutes(ledger: Path, tmp_path: Path) -> None:
    found = document(
        run("--ledger", ledger, "--out", tmp_path / "a.html", "--since", "2h", "--json")
    )
    assert found["rows"] == ["node-1:2", "node-1:0", "node-1:1"]
    assert found["columns"] == 90


def test_for_people_it_says_what_was_written(ledger: Path, tmp_path: Path) -> None:
    result = run("--ledger", ledger, "--out", tmp_path / "a.html")
    assert result.exit_code == 0
    assert "a.html: 2 rows by 3 columns of 60 s" in result.stdout


@pytest.mark.parametrize("rows", [(), (minute(90, "0", "sm_active_ratio", 0.5),)])
def test_nothing_of_that_time_is_exit_3_and_no_page(
    tmp_path: Path, rows: tuple[GpuMinute, ...]
) -> None:
    out = tmp_path / "a.html"
    result = run("--ledger", ledger_of(tmp_path / "ledger", *rows), "--out", out)
    assert result.exit_code == 3
    assert "nothing of that time" in result.stderr
    assert not out.exists()


def saved(path: Path, *samples: GpuSample, zero_at_utc_ns: int | None = None) -> Path:
    telemetry = Telemetry(samples=samples, zero_at_utc_ns=zero_at_utc_ns)
    path.write_bytes(b"".join(telemetry_lines(telemetry)))
    return path


def look(at_s: float, *, busy: float | None = None, bandwidth: float | None = None) -> GpuSample:
    gpu = GpuId(number="3")
    return GpuSample(gpu=gpu, at_s=at_s, sm_active_ratio=busy, dram_active_ratio=bandwidth)


@pytest.mark.parametrize(
    ("zero_ns", "utc"),
    [pytest.param(None, False, id="without"), pytest.param(1_793_491_200 * 10**9, True, id="with")],
)
def test_a_saved_file_is_drawn_with_its_time_of_day_or_without(
    tmp_path: Path, zero_ns: int | None, utc: bool
) -> None:
    looks = (look(50.0, busy=0.5), look(50.2, bandwidth=0.25))
    path = saved(tmp_path / "looks.jsonl", *looks, zero_at_utc_ns=zero_ns)
    out = tmp_path / "a.html"
    found = document(run("--telemetry", path, "--out", out, "--json"))
    assert (found["rows"], found["columns"]) == (["3"], 3)
    assert found["known_ratio"] == {"bandwidth": pytest.approx(1 / 3), "idle": pytest.approx(1 / 3)}
    moments = [f"2026-11-01 00:00:50.{tenth}00" for tenth in range(3)]
    assert [moment in out.read_text() for moment in moments] == [utc] * 3


def test_a_saved_file_without_a_gpu_is_exit_3(tmp_path: Path) -> None:
    result = run("--telemetry", saved(tmp_path / "looks.jsonl"), "--out", tmp_path / "a.html")
    assert result.exit_code == 3


def test_a_file_that_is_none_of_ours_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "looks.jsonl"
    path.write_text('{"telemetry":1}\n{"what":2}\n')
    result = run("--telemetry", path, "--out", tmp_path / "a.html")
    assert isinstance(result.exception, TraceError)
    assert "looks.jsonl:2" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        pytest.param(["--out", "a.txt"], "--out", id="a format that there is not"),
        pytest.param(["--out", "no/a.html"], "--out", id="no such directory"),
        pytest.param(["--out", "a.html", "--since", "soon"], "--since", id="no time"),
        pytest.param(["--out", "a.html", "--telemetry", "none"], "--telemetry", id="no such file"),
        pytest.param(["--out", "a.html", "--ledger", "none"], "--ledger", id="no such ledger"),
        pytest.param(["--out", "a.html", "--for", "0.3s"], "--for", id="too short to see anything"),
        pytest.param(["--out", "a.html", "--for", "2h"], "--for", id="too long"),
        pytest.param(["--out", "a.html", "--for", "x"], "--for", id="no length of time"),
        pytest.param(
            ["--out", "a.html", "--for", "1s", "--telemetry", "x"], "--for", id="two sources"
        ),
    ],
)
def test_what_cannot_be(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], key: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("--ledger", ledger, *arguments)
    assert isinstance(result.exception, ConfigError)
    assert key in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["ledger"]
