"""`mileage doctor profile --run`: real processes, a scripted profiler, an engine that profiles."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from mileage.cli.doctor_profile_run import run_plan
from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError, EngineError
from mileage.doctor.profile_plan import plan_profile
from mileage.scrape import profiler_process
from mileage.scrape.profiler_process import run_profiler
from tests.support.stand_in import Asked, Reply, StandIn

BUSY = "def tokenize():\n    while True: sum(range(1000))\ntokenize()\n"


def install(directory: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.skipif(shutil.which("py-spy") is None, reason="py-spy is not installed")
def test_py_spy_tells_what_a_python_process_does(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        to = tmp_path / "out"
        result = CliRunner().invoke(
            app,
            [
                *("doctor", "profile", "cpu", "--pid", str(process.pid), "--for", "1s"),
                *("--run", "--to", str(to), "--json"),
            ],
        )
    finally:
        process.kill()
        process.wait()
    if isinstance(result.exception, EngineError) and "ermission" in str(result.exception):
        pytest.skip("py-spy may not look at other processes here")
    told = json.loads(result.stdout)
    assert told["profiles"][0]["figures"]["tokenising_ratio"] == 1
    assert told["profiles"][0]["functions"][0]["name"].startswith("tokenize")


def test_a_result_counts_though_the_profiler_says_how_the_engine_was_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'while [ "$1" != --log-file ]; do shift; done; echo result > "$2"; exit 143'
    install(tmp_path / "bin", "ncu", script, monkeypatch)
    directory = tmp_path / "out"
    plan = plan_profile("kernels", directory=str(directory), for_s=1, command=("true",))
    assert run_plan(plan, directory, for_s=1) == [directory / "kernels.csv"]
    with pytest.raises(ConfigError, match="not there yet"):
        run_plan(plan, directory, for_s=1)


def test_nsys_records_and_then_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        'if [ "$1" = stats ]; then echo "table"; exit 0; fi\n'
        'for word in "$@"; do case "$word" in --output=*) touch "${word#--output=}.nsys-rep";; '
        "esac; done; exit 143"
    )
    install(tmp_path / "bin", "nsys", script, monkeypatch)
    directory = tmp_path / "out"
    plan = plan_profile("gaps", directory=str(directory), for_s=1, command=("true",))
    (result,) = run_plan(plan, directory, for_s=1)
    assert result.read_text() == "table\n"


def test_what_a_profiler_says_last_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "bin", "ncu", "echo ERR_NVGPUCTRPERM >&2; exit 1", monkeypatch)
    directory = tmp_path / "out"
    plan = plan_profile("kernels", directory=str(directory), for_s=1, command=("true",))
    with pytest.raises(EngineError, match="ended with 1: ERR_NVGPUCTRPERM"):
        run_plan(plan, directory, for_s=1)


def test_past_its_time_the_whole_group_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler_process, "_GRACE_S", 0.3)
    words = ["/bin/sh", "-c", f"sleep 600 & echo $! > {tmp_path}/child; wait"]
    with pytest.raises(EngineError, match="took longer than"):
        run_profiler(words, stdout=tmp_path / "out", log=tmp_path / "log", timeout_s=0.5)
    child = int((tmp_path / "child").read_text())
    due_s = time.monotonic() + 60
    while is_running(child):
        assert time.monotonic() < due_s
        time.sleep(0.02)


class Profiled(StandIn):
    """Answers as vLLM does; where it `profiles`, stopping writes a trace to `traces`."""

    def __init__(self, *, profiles: bool, traces: Path) -> None:
        super().__init__()
        self.asked: list[str] = []
        self._profiles, self._traces = profiles, traces

    def reply(self, asked: Asked) -> Reply:
        """Only what is posted is known, if anything."""
        if asked.method != "POST":
            return Reply(404)
        self.asked.append(asked.path)
        if self._profiles and asked.path == "/stop_profile":
            (self._traces / "rank0.json").write_text('{"traceEvents": []}')
        return Reply(200 if self._profiles else 404)


def test_an_engine_is_told_to_start_and_to_stop_and_its_new_trace_is_read(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    (traces / "old.json").write_text("{}")
    with Profiled(profiles=True, traces=traces) as engine:
        plan = plan_profile("gaps", directory=str(tmp_path / "out"), for_s=0.1, url=engine.url)
        found = run_plan(plan, tmp_path / "out", for_s=0.1, url=engine.url, trace_dir=traces)
    assert engine.asked == ["/start_profile", "/stop_profile"]
    assert found == [traces / "rank0.json"]


def test_an_engine_that_cannot_be_profiled_says_how_it_could(tmp_path: Path) -> None:
    with Profiled(profiles=False, traces=tmp_path) as engine:
        plan = plan_profile("gaps", directory=str(tmp_path / "out"), for_s=0.1, url=engine.url)
        with pytest.raises(EngineError, match=r"404.*--profiler-config"):
            run_plan(plan, tmp_path / "out", for_s=0.1, url=engine.url)
