"""Minutes of GPUs in the ledger: their figures, rolled up, for as long as raw records are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from mileage.storage.open_ledger import open_ledger
from mileage.storage.sqlite import ledger_errors

__all__ = ["INSERT_GPU_MINUTE", "GpuMinute", "read_gpu_minutes"]


class GpuMinute(NamedTuple):
    """One figure (`mileage.measure.gpu_rollup.ROLLED_UP`) of one GPU in one minute."""

    minute_at_utc_s: int
    host: str
    gpu: str
    field: str
    mean: float
    max: float
    samples: int


INSERT_GPU_MINUTE: Final = (
    "INSERT INTO gpu_minutes VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)


def read_gpu_minutes(
    ledger: str | Path, since_utc_s: int, until_utc_s: int, fields: Iterable[str]
) -> Iterator[GpuMinute]:
    """The minutes in this time, in order; `ledger` as for `open_ledger`. Raises LedgerError."""
    path, connection = open_ledger(ledger)
    chosen = list(fields)
    marks = ", ".join("?" * len(chosen))
    sql = (
        "SELECT * FROM gpu_minutes WHERE minute_at_utc_s >= ? AND minute_at_utc_s < ? "  # noqa: S608
        f"AND field IN ({marks}) ORDER BY minute_at_utc_s, host, gpu, field"
    )
    try:
        with ledger_errors(path):
            for row in connection.execute(sql, [since_utc_s, until_utc_s, *chosen]):
                yield GpuMinute(*row)
    finally:
        connection.close()
