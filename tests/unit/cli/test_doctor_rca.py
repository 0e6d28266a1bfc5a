"""`mileage doctor rca`: from a ledger, and from a file, to an exit code, a document and a page."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError
from mileage.core.timeline import RequestTimeline
from mileage.doctor.rca.series import History
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore
from tests.support.ledger_records import store_ends
from tests.support.rca_histories import fleet_history, no_change, overflow

UNTIL = "2027-01-15T08:00:00Z"
UNTIL_UTC_S = 1_800_000_000.0


def run(*options: str) -> Result:
    """What the command does; errors that are no exit come through."""
    result = CliRunner(env={"NO_COLOR": "1"}).invoke(app, ["doctor", "rca", *options])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def written(path: Path, history: History) -> Path:
    """The history as a file."""
    path.write_bytes(msgspec.json.encode(history))
    return path


def arrivals(now_s: float) -> Iterator[RequestTimeline]:
    """Three hours of two replicas; in the last half hour b is four times as slow."""
    random_ = random.Random(1)
    for number in range(10_800):
        at_s = now_s - 10_800 + number
        replica = random_.choice(["a", "b"])
        slow = 4.0 if replica == "b" and number >= 9000 else 1.0
        ttft_s = 0.2 * slow * random_.lognormvariate(0, 0.2)
        yield RequestTimeline(
            id=(round(at_s * 1e6) << 6) | 1,
            tenant=random_.choice(["x", "y"]),
            model="m",
            endpoint="chat",
            stream=True,
            arrived_at_utc_ns=round(at_s * 1e9),
            outcome="ok",
            status=200,
            replica=replica,
            attempts=1,
            dispatched_s=0.001,
            first_token_s=ttft_s,
            last_token_s=ttft_s + 1.0,
            finished_s=ttft_s + 1.0,
            prompt_tokens=100,
            output_tokens=50,
            itl_mean_s=0.02,
        )


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """An empty ledger."""
    directory = tmp_path / "ledger"
    directory.mkdir()
    SqliteStore(directory / DATABASE_NAME).close()
    return directory


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration whose journal is not that of this machine."""
    path = tmp_path / "mileage.toml"
    path.write_text(f'[journal]\ndirectory = "{tmp_path / "journal"}"\n')
    return path


def test_the_slow_replica_is_named_out_of_the_ledger(ledger: Path, config: Path) -> None:
    store = SqliteStore(ledger / DATABASE_NAME)
    store_ends(store, arrivals(UNTIL_UTC_S))
    store.close()
    where = ["--ledger", str(ledger), "--config", str(config)]
    result = run(*where, "--until", UNTIL, "--since", "1h", "--json")
    assert result.exit_code == 1
    document: dict[str, Any] = msgspec.json.decode(result.stdout)
    assert document["roots"][0]["node"] == "replica:b"
    assert document["actions"][0]["kind"] == "quarantine"
    assert document["window"]["step_s"] == 10.0


def test_an_empty_ledger_is_not_enough_evidence(ledger: Path, config: Path) -> None:
    result = run("--ledger", str(ledger), "--config", str(config))
    assert result.exit_code == 3
    assert "any record of requests" in result.stdout


def test_a_file_gives_a_text_and_a_page(tmp_path: Path) -> None:
    path = written(tmp_path / "history.json", fleet_history(1, overflow))
    page = tmp_path / "page.html"
    result = run("--series", str(path), "--html", str(page))
    assert result.exit_code == 1
    assert "replica a, from" in result.stdout.splitlines()[0]
    assert "POST /api/v1/replicas/a/disable" in result.stdout
    assert "replica a" in page.read_text("utf-8")


def test_noise_is_clear(tmp_path: Path) -> None:
    path = written(tmp_path / "history.json", fleet_history(3, no_change))
    result = run("--series", str(path))
    assert (result.exit_code, result.stdout.splitlines()[0][:5]) == (0, "Clear")


@pytest.mark.parametrize(
    ("options", "key"),
    [
        pytest.param(["--since", "soon"], "--since", id="no time"),
        pytest.param(["--until", "later"], "--until", id="no end"),
        pytest.param(["--history", "much"], "--history", id="no length"),
        pytest.param(["--since", "2100-01-01"], "--since", id="the future"),
        pytest.param(["--ledger", "/nowhere"], "--ledger", id="no ledger"),
        pytest.param(["--series", "/nowhere.json"], "--series", id="no file"),
        pytest.param(["--series", "-", "--ledger", "x"], "--series", id="two records"),
    ],
)
def test_what_is_wrong_is_named(options: list[str], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(*options)
    assert caught.value.key == key
