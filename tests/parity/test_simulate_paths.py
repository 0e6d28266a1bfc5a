"""mileage simulate by compiled code and by the gateway's own objects: the same figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError

TRACE = "synthetic:rate=6,duration=60s,prompt=uniform:100:3000,output=uniform:10:150"
OPTIONS = ("--trace", TRACE, "--model", "llama-3.1-8b", "--gpu", "a10", "--slo", "ttft=2s,itl=90ms")
CLOCKS = ("wall_s", "requests_per_s", "read_s")


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments])


def figures(*arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of the document, without what the clock says, and what was assumed."""
    result = simulate(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    assumed = found.pop("assumptions")
    return {key: value for key, value in found.items() if key not in CLOCKS}, assumed


@pytest.mark.parametrize("policy", ["off", "static:8+wait", "aimd+wait"])
@pytest.mark.parametrize("rate_scale", ["1", "2.5"])
def test_both_paths_give_the_same_figures(policy: str, rate_scale: str) -> None:
    options = (*OPTIONS, "--policy", policy, "--rate-scale", rate_scale, "--replicas", "2")
    slow, by_objects = figures(*options, "--path", "python")
    fast, compiled = figures(*options, "--path", "fast")
    assert (by_objects["path"], compiled["path"]) == ("python", "fast")
    assert fast == slow


def test_few_requests_are_not_worth_the_compiler() -> None:
    _, assumed = figures(*OPTIONS, "--policy", "off")
    assert (assumed["path"], assumed["path_reason"]) == (
        "python",
        "too few requests to be worth it",
    )


def test_what_only_the_python_path_can_do_is_done_by_it_and_told() -> None:
    _, assumed = figures(*OPTIONS, "--policy", "off", "--patience", "5s")
    assert assumed["path"] == "python"
    assert "patience_s" in assumed["path_reason"]
    result = simulate(*OPTIONS, "--policy", "off", "--patience", "5s", "--path", "fast")
    assert isinstance(result.exception, ConfigError)
    assert "patience_s" in str(result.exception)


def test_requests_that_columns_cannot_hold_are_simulated_in_python(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    record = '{{"arrived_s":{n},"prompt_tokens":50,"output_tokens":5,"tenant":"team-{n}"}}\n'
    trace.write_text("".join(record.format(n=n) for n in range(20)))
    options = ("--trace", str(trace), "--model", "llama-3.1-8b", "--gpu", "a10", "--policy", "off")
    _, assumed = figures(*options)
    assert assumed["path_reason"] == "requests have tenant"
    assert isinstance(simulate(*options, "--path", "fast").exception, ConfigError)
