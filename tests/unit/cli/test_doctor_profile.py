"""`mileage doctor profile`: the plan that it prints, exports that it reads, what it refuses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError, EngineError, MileageError, TraceError


def profile(*options: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["doctor", "profile", *options])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def host_bound_trace(path: Path) -> Path:
    """Forty decode steps of 10 ms in which the GPU works for 4 ms."""
    events: list[dict[str, Any]] = []
    for i in range(40):
        at = 10_000 * i
        step: dict[str, Any] = {"ph": "X", "pid": 1, "tid": 1}
        events += [
            {**step, "cat": "user_annotation", "name": "step[DECODE bs=8]", "ts": at, "dur": 900},
            {
                **step,
                "cat": "cuda_runtime",
                "name": "cudaGraphLaunch",
                "ts": at + 100,
                "dur": 5,
                "args": {"correlation": i + 1},
            },
            {
                "ph": "X",
                "cat": "kernel",
                "name": "nvjet_gemm",
                "pid": 0,
                "tid": 7,
                "ts": at + 200,
                "dur": 4000,
                "args": {"device": 0, "stream": 7, "correlation": i + 1},
            },
        ]
    with gzip.open(path, "wt") as file:
        json.dump({"traceEvents": events}, file)
    return path


def test_a_plan_is_printed_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out = profile("engine_host_bound", "--for", "5s", "--json")
    plan = json.loads(out)
    assert code == 0
    assert (plan["topic"], plan["tool"]) == ("gaps", "nsys")
    assert "--duration=5" in plan["commands"][0]
    assert list(tmp_path.iterdir()) == []


def test_a_rule_is_known_by_its_id() -> None:
    assert "nsys profile" in profile("HOST001")[1] or "py-spy" in profile("HOST001")[1]


def test_a_trace_becomes_facts_and_a_diagnosis(tmp_path: Path) -> None:
    trace = host_bound_trace(tmp_path / "rank0.json.gz")
    code, out = profile(
        *("engine_host_bound", "--read", str(trace), "--json"),
        *("--fact", "requests_running=8", "--fact", "workload.kind=online"),
    )
    told = json.loads(out)
    signals = told["facts"]["signals"]
    assert signals["step_time_s"] == pytest.approx(0.01)
    assert signals["step_host_gap_s"] == pytest.approx(0.006)
    assert signals["graph_replay_ratio"] == 1
    assert "of a step of 10 ms it waits 6 ms" in told["answer"]
    assert (code, told["findings"][0]["cause"]) == (1, "engine_host_bound")


def test_ranks_are_a_list(tmp_path: Path) -> None:
    traces = [host_bound_trace(tmp_path / f"rank{i}.json.gz") for i in range(2)]
    _, out = profile("gaps", "--json", *(f"--read={trace}" for trace in traces))
    assert len(json.loads(out)["facts"]["signals"]["gpu_util_ratio"]) == 2


def test_people_see_the_answer_first(tmp_path: Path) -> None:
    _, out = profile("gaps", "--read", str(host_bound_trace(tmp_path / "t.json.gz")))
    assert out.startswith("The GPU ran nothing for 59%")
    assert "nvjet_gemm" in out


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        pytest.param(("weather",), ConfigError, "gaps, kernels", id="no question"),
        pytest.param(("kv_preemption",), ConfigError, "metrics", id="what no profiler tells"),
        pytest.param(("gaps", "--for", "1h"), ConfigError, "1 s to 10 min", id="too long"),
        pytest.param(("gaps", "--tool", "vtune"), ConfigError, "nsys or ncu", id="no tool"),
        pytest.param(("gaps", "--command", "'"), ConfigError, "command line", id="open quote"),
        pytest.param(("gaps", "--run"), ConfigError, "--command", id="nothing to run"),
        pytest.param(("cpu", "--run"), ConfigError, "--pid", id="nobody to look at"),
        pytest.param(("gaps", "--run", "--read", "x"), ConfigError, "either", id="run and read"),
        pytest.param(("gaps", "--read", "/nowhere"), TraceError, "cannot be read", id="no file"),
        pytest.param(
            ("kernels", "--command", "true", "--run"), EngineError, "to get it", id="not installed"
        ),
    ],
)
def test_what_cannot_be_done_is_told(
    options: tuple[str, ...],
    error: type[MileageError],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(error, match=said):
        profile(*options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"\x1f\x8bbroken", "cannot be read", id="broken gzip"),
        pytest.param(b"SQLite format 3\0rest", "no database of nsys", id="broken database"),
        pytest.param(b"PK\x03\x04rest", "archive", id="an archive"),
    ],
)
def test_files_that_hold_an_export_say_how_to_get_at_it(
    data: bytes, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=said):
        profile("gaps", "--read", str(path))
