"""`mileage trace perfetto`: what it writes, where it refuses, and that nothing is left behind."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
from typer.testing import CliRunner, Result

from mileage.cli.trace_perfetto import perfetto
from mileage.core.errors import ConfigError, TraceError
from mileage.ledger.engine_step import EngineStep
from mileage.ledger.step_record import step_record
from mileage.measure.gpu_sample import GpuId, GpuSample
from mileage.measure.telemetry import Telemetry
from mileage.scrape.telemetry_file import telemetry_lines
from mileage.storage.gpu_minute_queue import GpuMinuteQueue
from mileage.storage.gpu_minutes import GpuMinute
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore
from tests.support.ledger_records import store_ends, timeline

app = typer.Typer()
app.command()(perfetto)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    directory = tmp_path / "ledger"
    directory.mkdir()
    store = SqliteStore(directory / DATABASE_NAME)
    now = time.time_ns()
    running = timeline(1, arrived_at_utc_ns=now - 400 * 10**9, finished_s=150.0)
    ended = timeline(2, arrived_at_utc_ns=now - 400 * 10**9, finished_s=1.0)
    store_ends(store, [timeline(0, arrived_at_utc_ns=now - 10**10), running, ended])
    store.close()
    return directory


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def test_requests_of_the_time_and_those_that_still_ran(ledger: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.pftrace"
    result = run("--ledger", ledger, "--out", out, "--since", "5m", "--json")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["requests"] == 2
    assert len(Trace.FromString(out.read_bytes()).packet) > 10


def test_json_and_steps(ledger: Path, tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    steps.write_bytes(step_record(EngineStep("r", time.time_ns(), 5)))
    out = tmp_path / "a.json"
    result = run("--ledger", ledger, "--out", out, "--steps", steps)
    assert result.exit_code == 0, result.output
    assert "2 requests, 1 steps" in result.stdout
    names = [
        event["name"] for event in json.loads(out.read_text())["traceEvents"] if "name" in event
    ]
    assert "step without requests" in names


def test_gpus_of_the_ledger_and_of_a_saved_file(ledger: Path, tmp_path: Path) -> None:
    now_s = time.time()
    minute_s = int(now_s) // 60 * 60 - 60
    minutes = GpuMinuteQueue(pause_s=1.0, pause_max_s=1.0)
    minutes.note(
        [
            GpuMinute(minute_s, "n", "0", "sm_active_ratio", 0.75, 1.0, 9),
            GpuMinute(minute_s, "n", "0", "power_w", 300.0, 400.0, 9),
            GpuMinute(minute_s - 3600, "n", "1", "power_w", 1.0, 1.0, 9),
        ]
    )
    with closing(SqliteStore(ledger / DATABASE_NAME)) as store:
        minutes.store(store, 0.0)
    saved = tmp_path / "looks.jsonl"
    sample = GpuSample(gpu=GpuId(number="7"), at_s=5.0, dram_active_ratio=0.5)
    zero_ns = int(now_s - 5.0) * 10**9
    looks = Telemetry(samples=(sample,), zero_at_utc_ns=zero_ns)
    saved.write_bytes(b"".join(telemetry_lines(looks)))
    out = tmp_path / "a.json"
    result = run("--ledger", ledger, "--out", out, "--telemetry", saved, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["gpus"] == 2
    events = json.loads(out.read_text())["traceEvents"]
    names = {
        each["pid"]: each["args"]["name"] for each in events if each.get("name") == "process_name"
    }
    curves = {
        (names[each["pid"]], each["name"]): (each["ts"], each["args"]["value"])
        for each in events
        if each["ph"] == "C" and names[each["pid"]].startswith("GPU")
    }
    assert curves == {
        ("GPU n:0", "idle cycles (ratio)"): (minute_s * 1e6, 0.25),
        ("GPU n:0", "power (W)"): (minute_s * 1e6, 300.0),
        ("GPU 7", "bandwidth use (ratio)"): (zero_ns / 1e3 + 5e6, 0.5),
    }


def test_a_saved_file_alone(tmp_path: Path) -> None:
    saved, out = tmp_path / "looks.jsonl", tmp_path / "a.pftrace"
    sample = GpuSample(gpu=GpuId(number="7"), at_s=5.0, dram_active_ratio=0.5)
    saved.write_bytes(b"".join(telemetry_lines(Telemetry(samples=(sample,), zero_at_utc_ns=9))))
    result = run("--no-requests", "--out", out, "--telemetry", saved)
    assert result.exit_code == 0, result.output
    assert "0 requests, 0 steps, 1 GPUs" in result.stdout


def test_a_saved_file_without_a_time_of_day_leaves_nothing_behind(tmp_path: Path) -> None:
    saved, out = tmp_path / "looks.jsonl", tmp_path / "a.pftrace"
    saved.write_bytes(b"".join(telemetry_lines(Telemetry())))
    result = run("--no-requests", "--out", out, "--telemetry", saved)
    assert isinstance(result.exception, TraceError)
    assert "no time of day" in str(result.exception)
    assert not out.exists()


def test_nothing_on_record(ledger: Path, tmp_path: Path) -> None:
    result = run("--ledger", ledger, "--out", tmp_path / "a.json", "--since", "1s")
    assert result.exit_code == 3
    assert "nothing was on record" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        pytest.param(["--out", "a.txt"], "--out", id="a format that there is not"),
        pytest.param(["--out", "a.json", "--until", "1h"], "--until", id="ends before it begins"),
        pytest.param(["--out", "a.json", "--since", "soon"], "--since", id="no time"),
        pytest.param(["--out", "a.json", "--steps", "none"], "--steps", id="no such file"),
        pytest.param(["--out", "a.json", "--telemetry", "none"], "--telemetry", id="no such looks"),
        pytest.param(["--out", "no/a.json"], "--out", id="no such directory"),
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
