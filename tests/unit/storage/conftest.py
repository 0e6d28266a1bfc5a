"""A feeder, and writers to the same directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mileage.storage.feeder import Feeder
from mileage.storage.log import LogWriter
from tests.support.ledger_records import BASE_UTC_NS


@pytest.fixture
def feeder(tmp_path: Path) -> Iterator[Feeder]:
    feeder = Feeder(tmp_path)
    yield feeder
    feeder.stop()


@pytest.fixture
def open_writer(tmp_path: Path) -> Iterator[Callable[..., LogWriter]]:
    """Opens writers; those still open at the end are closed."""
    writers: list[LogWriter] = []

    def open_writer(worker: int = 0, segment_bytes_max: int = 1 << 20) -> LogWriter:
        writer = LogWriter(
            tmp_path,
            worker,
            segment_bytes_max=segment_bytes_max,
            clock=lambda: 0.0,
            utc_ns=lambda: BASE_UTC_NS + 1000 * len(writers),
        )
        writers.append(writer)
        return writer

    yield open_writer
    for writer in writers:
        writer.close()
