"""What a test does to a ledger directory and sees in it."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Protocol

from mileage.core.timeline import RequestTimeline
from mileage.storage.log import LogWriter
from mileage.storage.queries import LedgerReader
from mileage.storage.segment import SegmentName

__all__ = ["drain", "kill", "segments", "stored"]


class Stepping(Protocol):
    """A feeder or follower."""

    def step(self) -> bool:
        """One pass; True if another one has work."""
        ...


def kill(writer: LogWriter) -> None:
    """What SIGKILL does to a writer: its files are closed, nothing else."""
    os.close(writer._fd)
    writer._fd = -1


def drain(feeder: Stepping) -> None:
    """Passes until there is nothing to do."""
    for _ in range(1000):
        if not feeder.step():
            return
    raise AssertionError("the feeder finds no end")


def stored(directory: Path) -> dict[int, RequestTimeline]:
    """All requests in the database, by id."""
    with closing(LedgerReader(directory)) as reader:
        return {t.id: t for t in reader.last(1 << 62)}


def segments(directory: Path) -> list[str]:
    """Names of the log's segments; one that its writer died too early to name is none."""
    return sorted(name for name in os.listdir(directory / "log") if SegmentName.parse(name))
