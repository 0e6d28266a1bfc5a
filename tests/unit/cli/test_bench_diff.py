"""mileage bench diff: both runs' figures, what else differs, and when there is no verdict."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from mileage.cli.bench_document import bench_document
from mileage.cli.bench_result import BenchRun
from mileage.cli.bench_save import save_run
from mileage.cli.whole_command import app
from mileage.core.errors import TraceError
from mileage.core.slo import Slo
from mileage.loadgen.generator_use import GeneratorUse
from mileage.loadgen.run import LoadRun
from mileage.measure.call_record import CallRecord


def bench_run(
    seed: int, *, slower: float = 1.0, duration_s: float = 40.0, **options: Any
) -> BenchRun:
    """20 requests a second with five tokens each."""
    rng = Random(seed)
    records = []
    for index in range(int(20 * duration_s)):
        at_s = index / 20
        first_s = at_s + slower * (0.1 + 0.02 * rng.random())
        times = [first_s + slower * 0.01 * k for k in range(5)]
        records.append(
            CallRecord(
                index=index,
                phase="measured",
                outcome="ok",
                scheduled_s=at_s,
                taken_s=at_s,
                sent_s=at_s,
                ended_s=times[-1],
                token_times_s=array("d", times),
                token_events=array("I", [1] * 5),
                output_tokens=5,
            )
        )
    load = LoadRun(
        records=records,
        generator=GeneratorUse(lag_p99_s=0.001, cpu_ratio=0.1),
        started_at_utc="2026-01-01T00:00:00+00:00",
        zero_monotonic_s=0.0,
        start_s=0.0,
        end_s=duration_s,
        elapsed_s=duration_s + 1.0,
    )
    conditions = {"url": "http://h:1", "model": "m", "workload": {"name": "20/s"}, **options}
    return BenchRun(load=load, slo=Slo(ttft_s=0.2), conditions=conditions)


def saved(path: Path, run: BenchRun) -> Path:
    save_run(path, run, bench_document(run, run.figures()))
    return path


def compared(a: Path, b: Path, *, code: int) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["bench", "diff", str(a), str(b), "--json"])
    assert result.exit_code == code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_slower_run_is_worse_and_the_exit_code_says_so(tmp_path: Path) -> None:
    a = saved(tmp_path / "a.mlrun", bench_run(1, server={"version": "1"}))
    b = saved(tmp_path / "b.mlrun", bench_run(2, slower=1.2, server={"version": "2"}))
    document = compared(a, b, code=1)
    assert document["verdict"] == "worse"
    assert "worse in e2e_p50_s" in document["reason"]
    metric = document["metrics"]["e2e_p50_s"]
    assert metric["ratio"] == pytest.approx(1.2, rel=0.02)
    assert metric["ci95"][0] > 1.1
    assert {"name": "server.version", "a": "1", "b": "2"} in document["differences"]
    assert any("mileage bench ab" in line for line in document["warnings"])
    assert compared(b, a, code=0)["verdict"] == "better"


def test_the_same_twice_shows_no_difference(tmp_path: Path) -> None:
    a = saved(tmp_path / "a.mlrun", bench_run(1))
    b = saved(tmp_path / "b.mlrun", bench_run(2))
    document = compared(a, b, code=0)
    assert document["verdict"] == "no_difference"
    assert document["differences"] == []


def limited(run: BenchRun) -> BenchRun:
    generator = GeneratorUse(limited=True, reason="its thread was busy")
    return replace(run, load=replace(run.load, generator=generator))


@pytest.mark.parametrize(
    ("other", "why"),
    [
        pytest.param(bench_run(2, duration_s=8.0), "shorter", id="a short run"),
        pytest.param(limited(bench_run(2)), "B's load generator", id="a generator at its limit"),
        pytest.param(replace(bench_run(2), error="it is down"), "it is down", id="no run at all"),
    ],
)
def test_no_verdict_where_there_is_no_evidence(tmp_path: Path, other: BenchRun, why: str) -> None:
    a, b = saved(tmp_path / "a.mlrun", bench_run(1)), saved(tmp_path / "b.mlrun", other)
    document = compared(a, b, code=3)
    assert document["verdict"] == "invalid"
    assert why in document["reason"]


def test_people_get_a_table(tmp_path: Path) -> None:
    a = saved(tmp_path / "a.mlrun", bench_run(1))
    b = saved(tmp_path / "b.mlrun", bench_run(2, slower=1.2))
    shown = CliRunner().invoke(app, ["bench", "diff", str(a), str(b)])
    assert shown.exit_code == 1
    for part in ("e2e_p50_s *", "B / A", "95 % interval", "worse", "decides the verdict"):
        assert part in shown.stdout


def test_a_file_that_is_no_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("no run")
    result = CliRunner().invoke(app, ["bench", "diff", str(path), str(path)])
    assert isinstance(result.exception, TraceError)
    assert str(path) in str(result.exception)
