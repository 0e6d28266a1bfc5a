"""`mileage plan calibrate`, and simulations with what it learned."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError, TraceError
from mileage.costmodel.calibration import Calibration, calibrated
from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.efficiency_table import FITTED
from mileage.ledger.engine_step import EngineStep, StepUse
from mileage.ledger.step_record import step_record
from mileage.loadgen.run_meta import RunMeta, SavedTarget
from mileage.loadgen.saved_run import SavedRun, write_run
from mileage.measure.call_record import CallRecord
from tests.support.lockstep_engine import arrivals, serve
from tests.support.simulate_cli import document, error_of

SEQS, BUDGET = 32, 1024
ENGINE = ("--model", "llama-3.1-8b", "--gpu", "h100")
LIMITS = ("--engine-max-seqs", str(SEQS), "--engine-tokens", str(BUDGET))
DEPLOYMENT = Deployment(model=architecture("llama-3.1-8b"), gpu=gpu("h100"))
REAL = calibrated(
    DEPLOYMENT.step_table(SEQS, BUDGET),
    Calibration(decode_ratio=1.3, prefill_ratio=1.2, kv_ratio=1.3),
)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["plan", "calibrate", *arguments], env={"NO_COLOR": "1"})


def real_step_s(decoding: int, context: int, prefill: int) -> float:
    return REAL.step_s(decoding, context, prefill, prefill * (prefill + 1) / 2)


def saved(path: Path, count: int = 200) -> str:
    """What a load generator saw of an engine that is slower than the model says."""
    load = arrivals(count, 6.0, 5, prompt=(50, 1500), output=(10, 120))
    served = serve(load, real_step_s, slots=SEQS, step_tokens_max=BUDGET, before_s=FITTED.ttft_s)
    records = [
        CallRecord(
            index=number,
            phase="measured",
            outcome="ok",
            scheduled_s=each.dispatched_s,
            sent_s=each.dispatched_s,
            ended_s=each.last_s,
            token_times_s=array("d", each.token_times_s),
            token_events=array("I", [1] * each.output_tokens),
            prompt_tokens=each.prompt_tokens,
            output_tokens=each.output_tokens,
        )
        for number, each in enumerate(served)
    ]
    meta = RunMeta(
        mileage_version="1.0",
        started_at_utc="2026-11-30T04:00:00Z",
        start_s=0.0,
        end_s=60.0,
        elapsed_s=61.0,
        targets=(SavedTarget(name="engine", url="http://h:1"),),
    )
    with path.open("wb") as file:
        write_run(file, SavedRun(meta=meta, records=records))
    return str(path)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The file, and the document."""
    directory = tmp_path_factory.mktemp("calibrated")
    out = directory / "calibration.json"
    result = run(saved(directory / "a.mlrun"), *ENGINE, *LIMITS, "--out", str(out), "--json")
    assert result.exit_code == 0, result.output
    return out, json.loads(result.stdout)


def test_a_saved_run_tells_by_how_much_the_model_is_wrong(
    learned: tuple[Path, dict[str, Any]],
) -> None:
    path, told = learned
    assert told["calibration"]["decode_ratio"] == pytest.approx(1.3, rel=0.03)
    assert told["calibration"]["prefill_ratio"] == pytest.approx(1.2, rel=0.1)
    assert (told["replica"], told["answers"], told["kind"]) == ("engine", 200, "steps")
    for name in ("step", "ttft", "itl"):
        errors = told["errors"][name]
        assert errors["before"] > 0.1, name
        assert errors["after"] < 0.6 * errors["before"], name
    assert told["compared_requests"] == 100
    written = json.loads(path.read_bytes())
    assert (written["gpu"], written["engine"]) == ("H100-SXM5-80GB", "vllm")
    assert written["calibration"] == told["calibration"]


def test_a_simulation_takes_it(learned: tuple[Path, dict[str, Any]]) -> None:
    path, told = learned
    trace = ("--trace", "synthetic:rate=2,duration=60s,seed=1", "--policy", "off")
    plain = document(*ENGINE, *LIMITS, *trace)
    real = document(*ENGINE, *LIMITS, *trace, "--calibration", str(path))
    ratio = real["itl_mean_s"]["p50"] / plain["itl_mean_s"]["p50"]
    assert ratio == pytest.approx(told["calibration"]["decode_ratio"], rel=0.03)
    assert plain["intervals"] is not None
    assert real["intervals"] is None
    assert real["assumptions"]["step_times"].startswith("roofline, calibrated by")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        pytest.param(("--gpu", "a100-80gb"), "it is of", id="of another card"),
        pytest.param(("--engine", "sglang"), "it is of", id="of another engine"),
        pytest.param(("--model", "llama-3.1-70b", "--tp", "4"), "it is of", id="another model"),
    ],
)
def test_it_is_refused_for_another(
    learned: tuple[Path, dict[str, Any]], options: tuple[str, ...], told: str
) -> None:
    error = error_of(
        *ENGINE, *options, "--trace", "synthetic:rate=1,duration=5s", "--calibration",
        str(learned[0]),
    )  # fmt: skip
    assert error.startswith("--calibration")
    assert told in error


def test_another_file_is_no_calibration(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    trace = ("--trace", "synthetic:rate=1,duration=5s")
    assert "a file of `mileage plan calibrate`" in error_of(
        *ENGINE, *trace, "--calibration", str(path)
    )


def test_people_see_errors_before_and_after(tmp_path: Path) -> None:
    source = saved(tmp_path / "a.mlrun")
    result = run(source, *ENGINE, *LIMITS, "--out", str(tmp_path / "c.json"))
    assert result.exit_code == 0, result.output
    assert "Llama-3.1-8B on H100-SXM5-80GB, vllm (engine)" in result.output
    for row in ("decoding", "TTFT", "ITL, a request's mean", "error of a step falls from 2"):
        assert row in result.output


def test_steps_of_the_engine_itself(tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    steps.mkdir()
    with (steps / "a.steps").open("wb") as file:
        for n in range(100):
            running = n % 30 + 1
            taken_s = REAL.step_s(running, 400 * running)
            uses = tuple(StepUse(k, 0, 1, 400) for k in range(running))
            file.write(step_record(EngineStep("a", n, round(taken_s * 1e9), uses)))
    out = str(tmp_path / "c.json")
    told = json.loads(run(str(steps), *ENGINE, *LIMITS, "--out", out, "--json").stdout)
    assert told["calibration"]["decode_ratio"] == pytest.approx(1.3, rel=0.03)
    assert told["errors"]["ttft"] == {"before": None, "after": None}
    assert told["answers"] is None


def test_an_engine_that_is_another_is_told(tmp_path: Path) -> None:
    """Steps of a model of 8B are no steps of one of 1B."""
    source = saved(tmp_path / "a.mlrun")
    small = ("--model", "llama-3.2-1b", "--gpu", "h100", *LIMITS)
    out = str(tmp_path / "c.json")
    told = json.loads(run(source, *small, "--out", out, "--json").stdout)
    assert "decode_ratio" in told["at_bound"]
    assert "another card, engine or layout" in run(source, *small, "--out", out).output


def test_too_little_to_learn_from_exits_with_3(tmp_path: Path) -> None:
    out = tmp_path / "c.json"
    nothing = run(saved(tmp_path / "b.mlrun", 0), *ENGINE, "--out", str(out))
    assert nothing.exit_code == 3
    assert "too little to learn from" in nothing.output
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        pytest.param(("nowhere",), "SOURCE", id="no file"),
        pytest.param((".",), "SOURCE", id="a directory with nothing of it"),
        pytest.param(("nowhere", "--out", "c.txt"), "--out", id="a file of another kind"),
        pytest.param(("nowhere", "--engine", "x.json"), "--engine", id="a fitted engine"),
        pytest.param(("nowhere", "--gpu", "h1000"), "--gpu", id="a card that is not known"),
        pytest.param(("nowhere", "--tp", "3"), "--tp", id="heads that do not divide"),
    ],
)
def test_a_bad_option_is_refused_by_name(
    arguments: tuple[str, ...], key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = run(arguments[0], *ENGINE, *arguments[1:]).exception
    assert isinstance(error, ConfigError)
    assert error.key == key


def test_a_damaged_run_is_told_by_file(tmp_path: Path) -> None:
    path = tmp_path / "a.mlrun"
    path.write_text("hello")
    error = run(str(path), *ENGINE, "--out", str(tmp_path / "c.json")).exception
    assert isinstance(error, TraceError)
    assert "is no saved run" in str(error)


def test_another_target_is_asked_for_by_name(tmp_path: Path) -> None:
    error = run(
        saved(tmp_path / "a.mlrun"), *ENGINE, "--replica", "b", "--out", str(tmp_path / "c.json")
    ).exception
    assert isinstance(error, ConfigError)
    assert (error.key, error.expected) == ("--replica", "one of engine")
