"""Runs in files: whole, to be compared later, and as a table with a row per request."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mileage import __version__
from mileage.cli.bench_lines import warnings_of
from mileage.cli.bench_result import BenchRun
from mileage.cli.whole_file import check_place, whole_file
from mileage.loadgen.host_facts import host_facts
from mileage.loadgen.run_meta import RunMeta, SavedTarget, without_secrets
from mileage.loadgen.run_rows import csv_rows, require_parquet, write_parquet
from mileage.loadgen.saved_run import SavedRun, write_run
from mileage.measure.call_record import CallRecord

__all__ = ["check_files", "save_csv", "save_parquet", "save_run"]


def check_files(*, save: Path | None, csv: Path | None, parquet: Path | None) -> None:
    """Raises ConfigError where the files could not be written, before anything is sent."""
    for path, key in ((save, "--save"), (csv, "--csv"), (parquet, "--parquet")):
        if path is not None:
            check_place(path, key=key)
    if parquet is not None:
        require_parquet("--parquet")


def save_run(path: Path, run: BenchRun, document: dict[str, Any]) -> None:
    """Write the run to be compared later: all of its records, and what it was. The file is whole,
    or as it was before. Raises ConfigError, and FileError where writing fails."""
    conditions = run.conditions
    meta = RunMeta(
        mileage_version=__version__,
        started_at_utc=run.load.started_at_utc,
        start_s=run.load.start_s,
        end_s=run.load.end_s,
        elapsed_s=run.load.elapsed_s,
        command=without_secrets(sys.argv),
        targets=(SavedTarget(name="", url=str(conditions.get("url"))),),
        model=conditions.get("model"),
        workload=(conditions.get("workload") or {}).get("name"),
        options=conditions,
        engine=conditions.get("server") or {},
        generator=document["generator"],
        figures=document,
        host=host_facts(),
        server=document["server"] or {},
        notes=tuple(warnings_of(document)),
    )
    with whole_file(path, key="--save") as file:
        write_run(file, SavedRun(meta=meta, records=run.load.records))


def save_csv(path: Path, records: Sequence[CallRecord]) -> None:
    """Write a row per request, in order of their schedule; otherwise as `save_run`."""
    with whole_file(path, key="--csv") as file:
        for part in csv_rows(_by_schedule(records)):
            file.write(part)


def save_parquet(path: Path, records: Sequence[CallRecord]) -> None:
    """The same rows as Parquet, with the times of tokens."""
    with whole_file(path, key="--parquet") as file:
        write_parquet(file, _by_schedule(records), key="--parquet")


def _by_schedule(records: Sequence[CallRecord]) -> list[CallRecord]:
    return sorted(records, key=lambda record: (record.scheduled_s, record.index))
