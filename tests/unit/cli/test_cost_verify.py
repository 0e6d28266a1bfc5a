"""`mileage cost verify`: sums that are proven, sums that differ, and none to prove."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError
from mileage.storage.sqlite import DATABASE_NAME
from tests.support.usage_world import UsageWorld, ran


def verify(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["cost", "verify", "--ledger", str(directory), *arguments])


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    world = UsageWorld(tmp_path)
    world.seen(0, 100)
    world.ends(*(ran(n, n * 9, 20) for n in range(10)))
    world.settle(100)
    world.close()
    return tmp_path


def document(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_sums_that_are_proven(ledger: Path) -> None:
    result = verify(ledger)
    assert result.exit_code == 0
    assert "every sum is proven" in result.stdout
    assert "settled until 2025-11-29T15:01:40Z" in result.stdout
    found = document(verify(ledger, "--json"))
    assert found["problems"] == []
    assert found["checked"]["requests"] == 10
    assert found["checked"]["requests_open"] == 1
    assert found["settled_until_utc_s"] == 1_764_428_500


def test_a_sum_that_differs_is_told_and_is_exit_code_1(ledger: Path) -> None:
    with closing(sqlite3.connect(ledger / DATABASE_NAME, isolation_level=None)) as connection:
        connection.execute("UPDATE capacity_hours SET idle_ns = idle_ns + 1")
    result = verify(ledger)
    assert result.exit_code == 1
    assert "problem: hour 1764428400 (UTC), replica 'a'" in result.stdout
    again = verify(ledger, "--json")
    assert again.exit_code == 1
    assert len(document(again)["problems"]) == 2


def test_nothing_to_prove_is_exit_code_3(tmp_path: Path) -> None:
    UsageWorld(tmp_path).close()
    result = verify(tmp_path)
    assert result.exit_code == 3
    assert "no GPU time is booked yet" in result.stdout


def test_a_directory_without_a_ledger_is_named(tmp_path: Path) -> None:
    result = verify(tmp_path / "none")
    assert isinstance(result.exception, ConfigError)
    assert "none" in str(result.exception)
