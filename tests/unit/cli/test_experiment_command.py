"""`mileage experiment`: what it asks, what it shows, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import mileage.cli.experiment as command
from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError, MileageError
from mileage.gateway.admin.experiment import ExperimentStatus
from mileage.wire.fetch import FetchResponse
from tests.support.toy_arms import DeskSite, experiment

TRIAL = (
    '[experiment]\nname = "trial"\nreplicas = ["b"]\n[[engines]]\nname = "a"\nurl = "http://a"\n'
)
TRIAL += 'kind = "vllm"\n[[engines]]\nname = "b"\nurl = "http://b"\nkind = "vllm"\n'


class _Plane:
    """An admin plane that answers what it was told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.status, self.body = 200, msgspec.json.encode(ExperimentStatus(state="none"))
        self.asked: list[tuple[str, str, bytes]] = []

    def answers(self, status: ExperimentStatus) -> None:
        self.status, self.body = 200, msgspec.json.encode(status)

    def refuses(self, status: int, message: str) -> None:
        error = {"message": message, "code": "some_code", "param": None}
        self.status, self.body = status, json.dumps({"error": error}).encode()

    def call(
        self, admin: str, path: str, token_file: Path | None, *, method: str, body: bytes
    ) -> FetchResponse:
        self.asked.append((method, path, body))
        return FetchResponse(self.status, (), self.body)


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch) -> _Plane:
    made = _Plane()
    monkeypatch.setattr(command, "call_admin", made.call)
    return made


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["experiment", *words])


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("status",), ("GET", "/api/v1/experiment", b"")),
        (("start",), ("POST", "/api/v1/experiment/start", b"")),
        (("stop",), ("POST", "/api/v1/experiment/stop", b"")),
        (("promote",), ("POST", "/api/v1/experiment/promote", b"")),
    ],
)
def test_each_command_asks_one_thing(
    plane: _Plane, words: tuple[str, ...], asked: tuple[str, str, bytes]
) -> None:
    result = run(*words)
    assert (result.exit_code, result.output) == (0, "there is no experiment\n")
    assert plane.asked == [asked]


def test_start_sends_the_section_of_a_file(plane: _Plane, tmp_path: Path) -> None:
    path = tmp_path / "trial.toml"
    path.write_text(TRIAL)
    assert run("start", "--config", str(path)).exit_code == 0
    sent = json.loads(plane.asked[0][2])
    assert (sent["name"], sent["replicas"]) == ("trial", ["b"])


def test_a_file_without_an_experiment_starts_none(plane: _Plane, tmp_path: Path) -> None:
    path = tmp_path / "trial.toml"
    path.write_text("")
    result = run("start", "--config", str(path))
    assert isinstance(result.exception, ConfigError)
    assert result.exception.key == "experiment.name"
    assert plane.asked == []


def test_both_arms_are_shown_side_by_side(plane: _Plane) -> None:
    site = DeskSite()
    site.desk.configure(experiment(mode="ab", ratio=0.25))
    site.seconds(10, took_s=0.2, failed=1)
    plane.answers(site.desk.status())
    result = run("status")
    assert result.exit_code == 0
    told = "\n".join(" ".join(line.split()) for line in result.output.splitlines())
    for line in (
        "experiment new (ab)",
        "state running, 25% of the traffic in arm b",
        "requests 200 200",
        "errors 0.00% 5.00%",
        "e2e_mean_s: b is worse, +100.00 %",
    ):
        assert line in told
    assert "verdict worse: after 8 blocks" in told
    assert json.loads(run("status", "--json").output)["verdict"] == "worse"


@pytest.mark.parametrize(
    ("seconds", "failed", "code"),
    [
        pytest.param(3, 0, 3, id="no verdict yet"),
        pytest.param(12, 0, 0, id="a verdict"),
        pytest.param(20, 10, 1, id="rolled back"),
    ],
)
def test_the_exit_code_tells_how_it_stands(
    plane: _Plane, seconds: int, failed: int, code: int
) -> None:
    site = DeskSite()
    site.desk.configure(experiment())
    site.seconds(seconds, failed=failed)
    plane.answers(site.desk.status())
    assert run("status").exit_code == code


@pytest.mark.parametrize("status", [400, 422])
def test_what_is_not_in_order_is_2(plane: _Plane, status: int) -> None:
    plane.refuses(status, "experiment.replicas: got 'x', expected names of replicas")
    result = run("start", "--json")
    assert result.exit_code == 2
    assert "mileage: experiment.replicas: got 'x'" in result.stderr
    assert json.loads(result.stdout)["error"]["code"] == "some_code"


def test_what_cannot_be_done_is_an_error(plane: _Plane) -> None:
    plane.refuses(409, "there is no experiment that runs.")
    result = run("stop")
    assert isinstance(result.exception, MileageError)
    assert "answered 409: there is no experiment that runs" in str(result.exception)


def test_names_cannot_command_the_terminal(plane: _Plane) -> None:
    site = DeskSite()
    site.desk.configure(experiment(name="\x1b[2J[red]x"))
    plane.answers(site.desk.status())
    output = run("status").output
    assert "\x1b" not in output
    assert "[red]x" in output
