"""`mileage requests` shows what is in the ledger, as a table or JSON, and names what is wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from mileage.cli.requests import requests
from mileage.core.errors import ConfigError, LedgerError, MileageError
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore
from tests.support.ledger_records import BASE_UTC_NS, request_id, store_ends, streamed, timeline

app = typer.Typer()
app.command()(requests)

Run = Callable[..., Result]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    store = SqliteStore(tmp_path / DATABASE_NAME)
    now = time.time_ns()
    store_ends(
        store,
        [
            timeline(0),
            streamed(1),
            timeline(2, outcome="failed", status=502, reason="broken", output_tokens=None),
            timeline(3, outcome="lost", status=0, replica=None, arrived_at_utc_ns=now - 10**10),
        ],
    )
    store.close()
    return tmp_path


@pytest.fixture
def run(directory: Path) -> Run:
    return lambda *arguments: CliRunner().invoke(app, ["--ledger", str(directory), *arguments])


def document(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def failure(result: Result) -> MileageError:
    assert isinstance(result.exception, MileageError), result.output
    assert result.stdout == ""
    return result.exception


def test_json_has_every_field_of_the_latest_requests(run: Run, directory: Path) -> None:
    found = document(run("--json", "--last", "3"))
    assert found["ledger"] == str(directory / DATABASE_NAME)
    assert [r["id"] for r in found["requests"]] == [request_id(n) for n in (3, 2, 1)]
    last = found["requests"][-1]
    assert last["token_times"] == [12_300, 1, 22_300, 2, 300_000, 14]
    assert last["arrived_at_utc"] == "2025-11-29T14:53:20.001000Z"
    assert found["requests"][1]["output_tokens"] is None
    assert set(found) == {"ledger", "requests"}


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        pytest.param(["--tenant", "team-0"], [3, 0], id="tenant"),
        pytest.param(["--model", "other"], [], id="model"),
        pytest.param(["--outcome", "failed"], [2], id="outcome"),
        pytest.param(["--since", "1h"], [3], id="since a duration"),
        pytest.param(["--since", "5s"], [], id="since a shorter one"),
        pytest.param(["--since", "2025-11-29T14:53:20.001Z"], [3, 2, 1], id="since a time"),
        pytest.param(["--since", "2025-11-29T14:53:20.001"], [3, 2, 1], id="without a zone: UTC"),
        pytest.param(["--since", "2025-11-29T15:53:20.002+01:00"], [3, 2], id="with an offset"),
        pytest.param(["--since", "2025-11-30"], [3], id="since a day"),
        pytest.param(["--last", "0"], [], id="none"),
    ],
)
def test_requests_are_chosen(run: Run, arguments: list[str], numbers: list[int]) -> None:
    found = document(run("--json", *arguments))
    assert [r["id"] for r in found["requests"]] == [request_id(n) for n in numbers]


def test_counts_are_given_when_asked_for(run: Run) -> None:
    counts = document(run("--json", "--count", "--last", "0", "--tenant", "team-0"))["counts"]
    assert [(c["outcome"], c["requests"]) for c in counts] == [("lost", 1), ("ok", 1)]


def test_the_table_is_readable(run: Run) -> None:
    result = run("--count")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0][:3] == ["arrived", "(UTC)", "tenant"]
    assert lines[2][1:] == [
        *("team-2", "smollm2", "chat", "failed", "502", "100", "12.3", "0.310"),
        *("127.0.0.1:9000", "broken"),
    ]
    assert lines[3][3:6] == ["chat", "(stream)", "ok"]
    assert ["team-1", "ok", "1", "100", "17"] in lines


def test_no_request_is_said_so(run: Run) -> None:
    assert run("--tenant", "nobody", "--count").stdout == "no such requests\n"


def test_what_requests_cost_is_shown_where_it_is_known(run: Run, directory: Path) -> None:
    assert "GPU ms" not in run().stdout
    store = SqliteStore(directory / DATABASE_NAME)
    store_ends(store, [timeline(9, gpu_ns=12_340_000, cost_nano_usd=5_600_000)])
    store.close()
    output = run().stdout
    assert "GPU ms" in output
    assert "12.3" in output
    assert "0.005600" in output


def test_clients_cannot_send_control_codes_to_the_terminal(run: Run, directory: Path) -> None:
    store = SqliteStore(directory / DATABASE_NAME)
    store_ends(store, [timeline(9, model="\x1b]0;pwned\x07[red]", arrived_at_utc_ns=1 << 62)])
    store.close()
    output = run("--last", "1").stdout
    assert "\x1b" not in output
    assert "\\x1b]0;pwned\\x07[red]" in output


def test_verify_finds_nothing_in_a_sound_ledger(run: Run) -> None:
    assert document(run("--json", "--verify"))["problems"] == []
    assert "no problem found" in run("--verify").stdout


def test_verify_exits_1_for_a_problem(run: Run, directory: Path) -> None:
    store = SqliteStore(directory / DATABASE_NAME)
    store_ends(store, [timeline(9, output_tokens=-1)])
    store.close()
    for arguments in (["--verify"], ["--verify", "--json"]):
        result = run(*arguments)
        assert result.exit_code == 1
        assert "1 requests have a negative figure" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        pytest.param(["--outcome", "good"], "--outcome", id="outcome"),
        pytest.param(["--since", "yesterday"], "--since", id="since"),
        pytest.param(["--since", "1w"], "--since", id="a unit we do not have"),
    ],
)
def test_a_bad_option_is_named(run: Run, arguments: list[str], named: str) -> None:
    error = failure(run(*arguments))
    assert isinstance(error, ConfigError)
    assert error.key == named


@pytest.mark.parametrize("last", ["-1", "many", "100001"])
def test_a_bad_count_is_a_usage_error(run: Run, last: str) -> None:
    assert run("--last", last).exit_code == 2


def test_a_directory_without_a_ledger_is_named(tmp_path: Path) -> None:
    error = failure(CliRunner().invoke(app, ["--ledger", str(tmp_path / "nowhere")]))
    assert isinstance(error, ConfigError)
    assert str(tmp_path / "nowhere") in str(error)


def test_a_file_that_is_no_ledger_is_named(tmp_path: Path) -> None:
    path = tmp_path / DATABASE_NAME
    path.write_bytes(b"no database" * 1000)
    error = failure(CliRunner().invoke(app, ["--ledger", str(tmp_path)]))
    assert isinstance(error, LedgerError)
    assert str(path) in str(error)


@pytest.mark.parametrize("where", ["file", "environment"])
def test_the_directory_comes_from_the_configuration(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    arguments = ["--json"]
    if where == "file":
        config = tmp_path / "mileage.toml"
        config.write_text(f'[ledger]\ndirectory = "{directory}"\n')
        arguments += ["--config", str(config)]
    else:
        monkeypatch.setenv("MILEAGE_LEDGER_DIRECTORY", str(directory))
    assert len(document(CliRunner().invoke(app, arguments))["requests"]) == 4


def test_without_configuration_it_is_the_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    directory = tmp_path / "mileage" / "ledger"
    directory.mkdir(parents=True)
    store = SqliteStore(directory / DATABASE_NAME)
    store_ends(store, [timeline(0)])
    store.close()
    found = document(CliRunner().invoke(app, ["--json"]))
    assert [r["arrived_at_utc_ns"] for r in found["requests"]] == [BASE_UTC_NS]
