"""`mileage roofline`: one JSON document, two GPUs side by side, and one clear error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError

ARGUMENTS = ["roofline", "--model", "qwen3-32b", "--gpu", "h20", "--batch", "64"]


def test_the_document_adds_up() -> None:
    result = CliRunner().invoke(app, [*ARGUMENTS, "--json"])
    document = json.loads(result.stdout)
    assert sum(o["time_s"] for o in document["operators"]) == pytest.approx(document["step_s"])
    assert document["bound"] == "compute"
    assert document["gpu"] == "H20-96GB"


def test_two_gpus_are_compared() -> None:
    result = CliRunner().invoke(app, [*ARGUMENTS, "--against", "a100"])
    assert result.exit_code == 0
    assert "H20-96GB takes" in result.stdout
    assert "feed-forward" in result.stdout
    both = json.loads(CliRunner().invoke(app, [*ARGUMENTS, "--against", "a100", "--json"]).stdout)
    assert [report["bound"] for report in both["reports"]] == ["compute", "memory"]


def test_no_figure_is_lost_on_a_narrow_terminal() -> None:
    huge = [*ARGUMENTS, "--batch", "100000", "--context", "1000000"]
    result = CliRunner().invoke(app, huge, env={"COLUMNS": "40"})
    assert "MB sent" in result.stdout
    assert "…" not in result.stdout


def test_a_step_that_does_not_fit_is_told() -> None:
    fits = CliRunner().invoke(app, [*ARGUMENTS, "--context", "100"])
    does_not = CliRunner().invoke(app, [*ARGUMENTS, "--context", "9000"])
    assert "does not fit" not in fits.stdout
    assert "does not fit: the step has 576,000 tokens" in does_not.stdout.replace("\n", " ")
    chunk = [*ARGUMENTS[:-1], "0", "--prefill", "2048", "--context", "500000"]
    told = CliRunner().invoke(app, chunk).stdout.replace("\n", " ")
    assert "does not fit: the step has 500,000 tokens" in told, "the prompt's earlier tokens, too"


def test_a_config_file_may_describe_the_model(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config = {
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_attention_heads": 8,
        "num_hidden_layers": 4,
        "vocab_size": 1000,
    }
    path.write_text(json.dumps(config), "utf-8")
    result = CliRunner().invoke(app, ["roofline", "--model", str(path), "--gpu", "t4", "--json"])
    assert json.loads(result.stdout)["step_s"] > 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        pytest.param(["--model", "qwen3-33b"], "nearest: Qwen/Qwen3-32B", id="model"),
        pytest.param(["--gpu", "h21"], "nearest: H20", id="GPU"),
        pytest.param(["--model", "no/config.json"], "a config.json that can be read", id="file"),
        pytest.param(["--weights", "fp7"], "--weights: got 'fp7'", id="precision"),
        pytest.param(["--engine", "ollama"], "--engine: got 'ollama'", id="engine"),
        pytest.param(["--against", "h21"], "--against: got 'h21'", id="the other GPU"),
        pytest.param(["--kv", "int2"], "bf16 or fp8", id="KV cache"),
        pytest.param(["--batch", "0"], "--batch: got 0", id="nothing to do"),
        pytest.param(["--tp", "5"], "--tp: got 5", id="heads do not divide"),
    ],
)
def test_bad_input_gets_one_clear_error(changed: list[str], message: str) -> None:
    result = CliRunner().invoke(app, [*ARGUMENTS, *changed])
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)
