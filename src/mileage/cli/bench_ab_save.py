"""The arms of an A/B run in files of their own, each as one run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mileage import __version__
from mileage.cli.bench_ab_run import AbRun
from mileage.cli.whole_file import whole_file
from mileage.loadgen.arms_pooled import pooled_records
from mileage.loadgen.arms_slots import Arm
from mileage.loadgen.run_meta import RunMeta, SavedTarget, without_secrets
from mileage.loadgen.saved_run import SavedRun, write_run

__all__ = ["arm_path", "save_arms"]

_NOTE = "the measured windows of an arm of an A/B run, one behind the other"


def arm_path(path: Path, arm: Arm) -> Path:
    """Where an arm is saved: runs/x.run is saved as runs/x-a.run and runs/x-b.run."""
    return path.with_name(f"{path.stem}-{arm}{path.suffix}")


def save_arms(path: Path, ab: AbRun, document: dict[str, Any]) -> None:
    """Write both; each file is whole, or as it was before. Raises ConfigError, FileError."""
    arms: tuple[Arm, Arm] = ("a", "b")
    for arm in arms:
        records, window_s = pooled_records(ab.run.slots, arm)
        side = document["arms"][arm]
        first = next((slot.load for slot in ab.run.slots if slot.arm == arm), None)
        meta = RunMeta(
            mileage_version=__version__,
            started_at_utc="" if first is None else first.started_at_utc,
            start_s=0.0,
            end_s=window_s,
            elapsed_s=window_s,
            command=without_secrets(sys.argv),
            targets=(SavedTarget(name=arm, url=side["url"]),),
            model=side.get("model"),
            workload=document["workload"]["name"],
            options={"plan": document["plan"], "settings": side["settings"]},
            engine=side.get("server") or {},
            figures=side["figures"] or {},
            notes=(_NOTE,),
        )
        with whole_file(arm_path(path, arm), key="--save") as file:
            write_run(file, SavedRun(meta=meta, records=records))
