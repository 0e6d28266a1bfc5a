"""Mileage's own records, and ServeGen's clients, as the sources of a trace."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from heapq import merge
from operator import itemgetter
from pathlib import Path
from typing import Final

from mileage.cli.trace_lines import Progress, file_lines
from mileage.core.errors import TraceError
from mileage.core.timeline import RequestTimeline
from mileage.storage.journal_files import JournalFile, find_journals
from mileage.storage.journal_reader import JournalReader
from mileage.storage.queries import LedgerReader
from mileage.workload.readers.events import Handling
from mileage.workload.readers.servegen import ServeGenClient

__all__ = ["journal_handlings", "ledger_timelines", "servegen_clients", "servegen_files"]

_CHUNK: Final = re.compile(r"chunk-(\d{1,9})-trace\.csv(\.gz)?")
_DATASET_BYTES_MAX: Final = 256 * 1024 * 1024
_NS: Final = 1e-9


def ledger_timelines(directory: Path) -> Iterator[RequestTimeline]:
    """The ledger's requests by arrival. Raises LedgerError."""
    reader = LedgerReader(directory)
    try:
        yield from reader.by_arrival()
    finally:
        reader.close()


def journal_handlings(path: Path, progress: Progress | None = None) -> Iterator[Handling]:
    """What all workers of a journal were told and did, by time. Raises TraceError, ConfigError."""
    journals = find_journals([path])
    origin_ns = min((ns for files in journals if (ns := _began_ns(files)) is not None), default=0)
    return merge(*(_worker(files, origin_ns, progress) for files in journals), key=itemgetter(0))


def _began_ns(files: Sequence[JournalFile]) -> int | None:
    for file in files:
        with JournalReader(file.path) as reader:
            header = reader.header()
        if header is not None:
            return header.began_at_utc_ns
    return None


def _worker(
    files: Sequence[JournalFile], origin_ns: int, progress: Progress | None
) -> Iterator[Handling]:
    """One worker's, by seconds since `origin_ns`.

    Segments of one run go by its monotonic clock, so a step of the wall clock is not in them.
    """
    run: int | None = None
    offset_s = 0.0
    for file in files:
        with JournalReader(file.path) as reader:
            header = reader.header()
            if header is None:
                continue
            if header.run != run:
                run = header.run
                offset_s = (header.began_at_utc_ns - origin_ns) * _NS - header.began_s
            label, size = f"reading {file.path.parent.name}/{file.path.name}", reader.size_bytes

            def report(done: int, label: str = label, size: int = size) -> None:
                if progress is not None:
                    progress(label, done, size)

            for record in reader.records(report):
                yield record.now_s + offset_s, record.event, record.actions


def servegen_files(directory: Path) -> list[tuple[int, Path]]:
    """Numbers and trace files of the clients in a directory of ServeGen; none elsewhere.

    Raises TraceError for a directory that cannot be read.
    """
    found = []
    try:
        paths = list(directory.iterdir())
    except OSError as error:
        raise TraceError(str(directory), 0, f"cannot be read: {error.strerror or error}") from None
    for path in paths:
        match = _CHUNK.fullmatch(path.name)
        if match:
            found.append((int(match[1]), path))
    return sorted(found)


def servegen_clients(files: Sequence[tuple[int, Path]]) -> list[ServeGenClient]:
    """Both files of each client, opened. Raises TraceError."""
    clients = []
    for number, path in files:
        names = (f"chunk-{number}-dataset.json", f"chunk-{number}-dataset.json.gz")
        dataset = next((p for name in names if (p := path.with_name(name)).exists()), None)
        if dataset is None:
            raise TraceError(str(path.with_name(names[0])), 0, "is missing beside its trace.csv")
        if dataset.stat().st_size > _DATASET_BYTES_MAX:
            raise TraceError(str(dataset), 0, f"is larger than {_DATASET_BYTES_MAX} bytes")
        clients.append(
            ServeGenClient(
                number=number,
                trace_path=str(path),
                trace=file_lines(path),
                dataset_path=str(dataset),
                dataset=b"\n".join(file_lines(dataset)),
            )
        )
    return clients
