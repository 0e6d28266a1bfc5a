"""A ledger whose roll-ups are written as they are given: for tests of what reads them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from random import Random

import msgspec

from mileage.ledger.usage_row import CapacityRow, UsageRow
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore

__all__ = ["month_of_rows", "write_rows"]

_HOUR_NS = 3_600_000_000_000


def write_rows(
    directory: Path,
    usage: Iterable[UsageRow],
    capacity: Iterable[CapacityRow],
    settled_until_utc_s: int | None = None,
) -> Path:
    """A new ledger with these rows; its directory."""
    directory.mkdir(parents=True, exist_ok=True)
    SqliteStore(directory / DATABASE_NAME).close()
    with closing(sqlite3.connect(directory / DATABASE_NAME)) as connection:
        for table, rows in (("usage_hours", list(usage)), ("capacity_hours", list(capacity))):
            if rows:
                names = rows[0].__struct_fields__
                marks = ", ".join("?" * len(names))
                connection.executemany(
                    f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})",
                    map(msgspec.structs.astuple, rows),
                )
        if settled_until_utc_s is not None:
            at_ns = settled_until_utc_s * 1_000_000_000
            connection.execute("INSERT INTO settled VALUES ('', ?)", (at_ns,))
        connection.commit()
    return directory


def month_of_rows(
    start_utc_s: int, hours: int, *, seed: int = 1, gpu: str = "L40S"
) -> tuple[list[UsageRow], list[CapacityRow]]:
    """Two replicas of four GPUs and four tenants with days and weekends, an anomaly in one hour."""
    random = Random(seed)
    usage, capacity = [], []
    tenants = {"search": 0.30, "support": 0.2, "batch": 0.12, "lab": 0.04}
    for hour in range(hours):
        at = start_utc_s + 3600 * hour
        day, weekday = (at // 3600) % 24, (at // 86_400 + 3) % 7
        busy = (0.25 + 0.75 * (8 <= day < 19)) * (0.4 if weekday >= 5 else 1.0)
        for replica in ("chat-1", "chat-2"):
            used = 0
            for tenant, part in tenants.items():
                level = 0.35 if tenant == "batch" and day < 6 else part * busy
                gpu_ns = int(4 * _HOUR_NS * level * random.uniform(0.85, 1.15))
                prompt = int(gpu_ns / 2e6)
                cached = int(prompt * (0.6 if tenant == "search" else random.uniform(0.0, 0.3)))
                prefill_ns = int((prompt - cached + 0.08 * cached) * 1.1e6)
                usage.append(
                    UsageRow(
                        hour_at_utc_s=at,
                        replica=replica,
                        tenant=tenant,
                        model="llama-3.1-70b",
                        key="" if tenant == "lab" else f"{tenant}-prod",
                        labels=f"app={tenant}",
                        requests=prompt // 900,
                        requests_failed=prompt // 90_000,
                        prompt_tokens=prompt,
                        cached_tokens=cached,
                        output_tokens=prompt // 6,
                        gpu_ns=gpu_ns,
                        prefill_ns=min(gpu_ns, prefill_ns),
                        recomputed_ns=prefill_ns // 50,
                        failed_ns=gpu_ns // 100,
                        low_ns=int(gpu_ns * 0.95),
                        high_ns=int(gpu_ns * 1.05),
                    )
                )
                used += gpu_ns
            warmup_ns = 4 * 90_000_000_000 if day == 7 else 0
            capacity_ns = max(4 * _HOUR_NS, used + warmup_ns)
            capacity.append(
                CapacityRow(
                    hour_at_utc_s=at,
                    replica=replica,
                    gpu=gpu,
                    gpus=4.0,
                    capacity_ns=capacity_ns,
                    idle_ns=capacity_ns - used - warmup_ns,
                    warmup_ns=warmup_ns,
                )
            )
    return usage, capacity
