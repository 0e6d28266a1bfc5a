"""`mileage bench sweep` on servers of known capacity."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError, EngineError
from mileage.loadgen.launched_server import free_port

SERVER = f"{sys.executable} -m tests.support.capacity_server --port {{port}} --service 0.2"
EDGES = 1.25
"""Answers that end just within a window of 2 s, and have begun before it, are counted in it."""
LOAD = ("--duration", "2s", "--warmup", "0.2s", "--prompt-tokens", "8", "--output-tokens", "4")


@pytest.mark.quiet
def test_more_slots_serve_more_and_the_front_says_so(tmp_path: Path) -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    page = tmp_path / "sweep.html"
    result = CliRunner().invoke(
        app,
        [
            *("bench", "sweep", "--launch", f"{SERVER} --slots {{value}}", "--values", "1,3"),
            *("--concurrency", "1,3", "--repeats", "2", "--json", "--report", str(page), *LOAD),
        ],
    )
    assert result.exit_code in (0, 3), result.output
    found = json.loads(result.stdout)
    rate, ttft_s = (
        {point["label"]: point["figures"][key]["mean"] for point in found["points"]}
        for key in ("requests_per_s", "ttft_s.p95")
    )
    # A slot serves 5 answers a second, fewer where other programs keep the server from its core:
    # then at all points, so that three slots have more than one by far all the same.
    assert rate["1, 3 clients"] < EDGES * 5.0
    assert EDGES * 5.0 < rate["3, 3 clients"] < EDGES * 15.0
    assert rate["3, 3 clients"] > 1.5 * rate["1, 3 clients"]
    assert ttft_s["1, 3 clients"] > 0.4 > ttft_s["1, 1 client"]  # two answers of others before it
    busy = [why for point in found["points"] for why in point["excluded"]]
    assert all("generator" in why for why in busy)
    if not busy:  # where other programs leave the generator its core
        assert found["picks"]["throughput"] == "3, 3 clients"
        on_front = {point["label"] for point in found["points"] if point["on_front"]}
        assert "3, 3 clients" in on_front
    assert "throughput" in page.read_text()
    after = {process.pid for process in psutil.Process().children(recursive=True)}
    assert after <= before


def test_an_endpoint_that_is_down_is_told() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    result = CliRunner().invoke(app, ["bench", "sweep", url, "--concurrency", "1,2", *LOAD])
    assert isinstance(result.exception, EngineError)


def test_a_server_that_does_not_start_costs_its_points_alone() -> None:
    command = f"sh -c '[ {{value}} = good ] && exec {SERVER}'"
    result = CliRunner().invoke(
        app,
        [
            *("bench", "sweep", "--launch", command, "--values", "bad,good", "--rate", "4,6"),
            *("--repeats", "1", "--json", *LOAD),
        ],
    )
    assert result.exit_code in (0, 3), result.output
    points = json.loads(result.stdout)["points"]
    assert [bool(point["runs"]) for point in points] == [False, False, True, True]
    assert "before it was ready" in points[0]["excluded"][0]


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        pytest.param(["http://h", "--rate", "1,2", "--quantile", "p42"], "--quantile", id="p42"),
        pytest.param(["http://h", "--launch", "x", "--rate", "1,2"], "URL", id="two endpoints"),
        pytest.param(["http://h", "--values", "1,2"], "--values", id="values of nothing"),
        pytest.param(
            ["http://h", "--command", "x", "--values", "1,2"], "--command", id="no place for one"
        ),
        pytest.param(["--launch", "x {host}", "--values", "1,2"], "--launch", id="no such place"),
    ],
)
def test_options_that_cannot_be(arguments: list[str], key: str) -> None:
    result = CliRunner().invoke(app, ["bench", "sweep", *arguments])
    assert isinstance(result.exception, ConfigError), result.output
    assert result.exception.key == key
