"""Rows of a ledger's roll-ups, put straight into its database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from mileage.storage.sqlite import DATABASE_NAME

__all__ = ["put_capacity", "put_settled", "put_usage"]


def put_usage(directory: Path, hour_at_utc_s: int, tenant: str, **sums: int) -> None:
    """What a tenant used of model m on replica a in an hour."""
    texts = {"replica": "a", "tenant": tenant, "model": "m"}
    _put(directory, "usage_hours", {"hour_at_utc_s": hour_at_utc_s, **texts, **sums})


def put_capacity(directory: Path, hour_at_utc_s: int, capacity_ns: int, *, idle_ns: int) -> None:
    """What there was of replica a."""
    sums = {"hour_at_utc_s": hour_at_utc_s, "capacity_ns": capacity_ns, "idle_ns": idle_ns}
    _put(directory, "capacity_hours", {"replica": "a", **sums})


def put_settled(directory: Path, until_utc_s: int) -> None:
    """All replicas are settled up to then."""
    for replica in ("", "a"):
        _put(directory, "settled", {"replica": replica, "until_utc_ns": until_utc_s * 10**9})


def _put(directory: Path, table: str, values: dict[str, int | str]) -> None:
    with closing(sqlite3.connect(directory / DATABASE_NAME)) as connection, connection:
        connection.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
            tuple(values.values()),
        )
