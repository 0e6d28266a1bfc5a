"""Addresses of databases: no password in them, and nothing of one in a message."""

from __future__ import annotations

import pytest

from mileage.core.errors import ConfigError
from mileage.storage.config import LedgerConfig
from mileage.storage.postgres_address import display_address


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        pytest.param("postgresql://me@db:5432/m", "postgresql://db:5432/m", id="host and port"),
        pytest.param("postgres://db/m?sslmode=require", "postgresql://db/m", id="no settings"),
        pytest.param("postgresql:///m?host=/run/pg", "postgresql:///run/pg/m", id="socket"),
        pytest.param("postgresql://[::1]:99/m", "postgresql://[::1]:99/m", id="IPv6"),
        pytest.param("postgresql://a:b@db:x/m", "postgresql://", id="none"),
    ],
)
def test_what_is_shown(address: str, shown: str) -> None:
    assert display_address(address) == shown


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("postgresql://me:hunter2@db/m", id="password"),
        pytest.param("postgresql://db/m?password=hunter2", id="password as a setting"),
        pytest.param("postgresql://db/m?sslpassword=hunter2", id="password of a key"),
        pytest.param("mysql://db/hunter2", id="another database"),
        pytest.param("host=db password=hunter2", id="another form"),
        pytest.param("postgresql://db:hunter2/m", id="no port"),
        pytest.param("postgresql://db/m#hunter2", id="fragment"),
    ],
)
def test_what_is_refused_is_not_shown(address: str) -> None:
    with pytest.raises(ConfigError, match="PGPASSFILE") as caught:
        LedgerConfig(database=address)
    assert caught.value.key == "ledger.database"
    assert "hunter2" not in str(caught.value)
