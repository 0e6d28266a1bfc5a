"""`mileage engine launch` and `starts`: what the command line refuses, and what history shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mileage.cli.config import state_directory
from mileage.cli.engine import engine
from mileage.cli.engine_launch import HISTORY_FILE
from mileage.cli.engine_launch_plan import planned_command
from mileage.core.errors import ConfigError
from mileage.engines.launch.start_history import StartHistory, StartRecord
from mileage.engines.launch.start_watch import StartTimes


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StartHistory:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return StartHistory(state_directory() / HISTORY_FILE)


def run(*words: str) -> Any:
    return CliRunner().invoke(engine, list(words))


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("ollama",), "ENGINE"),
        (("vllm", "--warm", "7"), "--warm"),
        (("vllm", "--ready-timeout-s", "0"), "--ready-timeout-s"),
        (("vllm", "--drain-s", "-1"), "--drain-s"),
        (("vllm", "--restarts", "-1"), "--restarts"),
        (("vllm", "--restart-backoff-s", "0"), "--restart-backoff-s"),
        (("vllm", "--restart-backoff-s", "61"), "--restart-backoff-s"),
        (("vllm", "--preload-reserve-gib", "inf"), "--preload-reserve-gib"),
        (("vllm", "--preload-reserve-gib", "nan"), "--preload-reserve-gib"),
        (("vllm", "--preload", "auto"), "--preload"),
        (("vllm", "--mps-pipe-dir", "/x"), "--mps-pipe-dir"),
        (("vllm", "--ready-file", "/nowhere/at/all/ready"), "--ready-file"),
        (("vllm", "--model", "m", "--", "n"), "--model"),
        (("vllm", "--log", "/dev/null/launch.log"), "--log"),
        (("vllm", "--log", "/"), "--log"),
        (("vllm", "--log", "/dev/null"), "--log"),
        (("vllm", "--ready-port", "8000"), "--ready-port"),
    ],
)
def test_what_is_refused(words: tuple[str, ...], key: str) -> None:
    error = run("launch", *words).exception
    assert isinstance(error, ConfigError), error
    assert error.key == key


def record(ready_s: float | None, at: int, **more: Any) -> StartRecord:
    return StartRecord(
        at_utc=f"2026-11-{at:02d}T00:00:00+00:00",
        engine="vllm",
        model="m",
        ready=ready_s is not None,
        times=StartTimes(ready_s=ready_s, weights_s=None if ready_s is None else ready_s / 2),
        **more,
    )


def test_a_slower_start_is_seen_against_the_median(history: StartHistory) -> None:
    for at, ready_s in enumerate((60.0, 90.0, 62.0, None, 100.0), start=1):
        history.add(record(ready_s, at, cause=None if ready_s else "out_of_memory"))
    result = run("starts", "--json")
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["starts"]
    assert (found["starts"], found["failed"]) == (5, 1)
    assert found["newest"]["times"]["ready_s"] == 100.0
    assert found["median"]["ready_s"] == 62.0
    assert found["median"]["weights_s"] == 31.0
    assert found["median"]["compile_s"] is None
    shown = run("starts", "--model", "m").stdout
    assert "+38.0 s" in shown
    assert "out_of_memory" in shown


def test_no_start_yet(history: StartHistory) -> None:
    assert "No engine was launched" in run("starts").stdout
    assert json.loads(run("starts", "--json").stdout) == {"starts": []}


def test_the_history_is_bounded_and_half_a_line_does_not_matter(history: StartHistory) -> None:
    history.add(record(1.0, 1))
    path = state_directory() / HISTORY_FILE
    with path.open("ab") as file:
        file.write(b'{"at_utc":\n' + b"x" * (5 << 20) + b"\n")
    for _ in range(600):
        history.add(record(2.0, 2))
    assert path.stat().st_size < 1 << 20
    assert len(history.records()) == 500


@pytest.mark.parametrize(
    ("engine_name", "start", "untold"),
    [
        ("vllm", "/v/python -m vllm.entrypoints.openai.api_server --model m", []),
        ("sglang", "/v/python -m sglang.launch_server --model-path m", ["step_tokens_max"]),
    ],
)
def test_flags_of_a_plan(tmp_path: Path, engine_name: str, start: str, untold: list[str]) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('model = "m"\nrunning_max = 16\nstep_tokens_max = 512\nport = 8001\n')
    command, warnings = planned_command(
        engine_name,
        ["--max-num-seqs", "8"],
        plan,
        executable=None,
        python="/v/python",
        model=None,
        host=None,
        port=9001,
    )
    words = " ".join(command.words)
    assert words.startswith(start)
    assert words.count("--port") == 1
    assert words.endswith("--max-num-seqs 8")
    assert (command.port, command.model) == (9001, "m")
    assert command.number("--max-num-batched-tokens", "--chunked-prefill-size") == 512
    assert [warning.field for warning in warnings] == untold


@pytest.mark.parametrize(
    ("engine_name", "text", "key"),
    [
        ("vllm", 'model = "m"\ninstances = 2\n', "instances"),
        ("vllm", 'model = "m"\nruning_max = 2\n', "runing_max"),
        ("command", 'model = "m"\n', "--plan"),
    ],
)
def test_plans_that_cannot_be_launched(
    tmp_path: Path, engine_name: str, text: str, key: str
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(text)
    error = run("launch", engine_name, "--plan", str(plan)).exception
    assert isinstance(error, ConfigError), error
    assert error.key == key
