"""LedgerCosts: what the dashboard and metrics are told, out of a ledger's roll-ups."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.cli.config import Config
from mileage.cli.ledger_costs import LedgerCosts
from mileage.control.config import CostsConfig
from mileage.core.errors import ConfigError, LedgerError
from mileage.storage.config import LedgerConfig
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore
from tests.support.ledger_rows import put_capacity, put_settled, put_usage

HOUR_S = 3600
HOUR_NS = HOUR_S * 10**9
NOON_S = 1_800_057_600 + 12 * HOUR_S
NOW_S = NOON_S + 1800


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    SqliteStore(tmp_path / DATABASE_NAME).close()
    return tmp_path


def costs(directory: Path, now_s: float = NOW_S, price: float | None = 2.0) -> LedgerCosts:
    config = Config(
        ledger=LedgerConfig(directory=str(directory)), costs=CostsConfig(usd_per_gpu_hour=price)
    )
    return LedgerCosts(lambda: config, utc_s=lambda: now_s)


def test_a_window_is_read_as_the_command_reads_it(directory: Path) -> None:
    put_usage(directory, NOON_S - HOUR_S, "search", gpu_ns=HOUR_NS // 2)
    put_usage(directory, NOON_S - 30 * HOUR_S, "old", gpu_ns=HOUR_NS)
    put_capacity(directory, NOON_S - HOUR_S, HOUR_NS, idle_ns=HOUR_NS // 2)
    put_settled(directory, NOON_S + 60)
    found = costs(directory).read("24h", "tenant")
    assert [account.name for account in found.accounts] == ["search"]
    assert (found.gpu_ns_total, found.usd_total) == (HOUR_NS, 2.0)
    assert found.settled_utc_s == NOON_S + 60
    both = costs(directory).read("3d", "tenant")
    assert {account.name for account in both.accounts} == {"search", "old"}


@pytest.mark.parametrize(
    ("window", "by", "key"),
    [
        pytest.param("yesteryear", "tenant", "window", id="no time"),
        pytest.param("24h", "colour", "by", id="no kind of account"),
    ],
)
def test_what_cannot_be_asked_is_named(directory: Path, window: str, by: str, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        costs(directory).read(window, by)
    assert refused.value.key == key


def test_without_a_database_there_is_no_answer_yet(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"ledger\.sqlite"):
        costs(tmp_path / "none").read("24h", "tenant")
    with pytest.raises(LedgerError):
        costs(tmp_path / "none").figures()


def test_metrics_begin_with_the_hour_of_the_start(directory: Path) -> None:
    put_usage(directory, NOON_S - HOUR_S, "search", gpu_ns=HOUR_NS // 4, output_tokens=500_000)
    put_capacity(directory, NOON_S - HOUR_S, HOUR_NS, idle_ns=HOUR_NS * 3 // 4)
    put_usage(directory, NOON_S, "search", gpu_ns=1000)
    put_capacity(directory, NOON_S, 3000, idle_ns=2000)
    put_settled(directory, NOON_S + 60)
    found = costs(directory).figures()
    assert found.used["search", "m", "decode"] == 1000
    assert found.there["a", "idle"] == 2000
    (hour,) = found.hour
    assert (hour.model, hour.usd, hour.usd_per_million_tokens) == ("m", 2.0, 4.0)
    assert costs(directory, price=None).figures().hour == []


def test_before_anything_is_settled_there_is_no_hour(directory: Path) -> None:
    found = costs(directory).figures()
    assert (found.used, found.hour, found.settled_utc_s) == ({}, [], None)
