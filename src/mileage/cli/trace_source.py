"""open_trace(): the requests that a `--trace` argument means, whatever kind of thing it names."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from msgspec.structs import replace

from mileage.cli.trace_arguments import refuse_file_options, told_by_option
from mileage.cli.trace_catalogue import fetched_path
from mileage.cli.trace_lines import Progress, binary_head, file_lines, stream_lines
from mileage.cli.trace_names import no_trace
from mileage.cli.trace_records import (
    journal_handlings,
    ledger_timelines,
    servegen_clients,
    servegen_files,
)
from mileage.core.errors import ConfigError, TraceError
from mileage.storage.journal_files import find_journals
from mileage.storage.sqlite import DATABASE_NAME
from mileage.workload.ordering import Row, in_order
from mileage.workload.read_options import ReadOptions, ReadTally
from mileage.workload.readers.events import event_rows
from mileage.workload.readers.servegen import servegen_requests
from mileage.workload.readers.timelines import timeline_rows
from mileage.workload.source import read_trace
from mileage.workload.synthetic.config import SyntheticConfig
from mileage.workload.synthetic.generator import generate
from mileage.workload.synthetic.spelling import parse_synthetic, synthetic_config
from mileage.workload.trace_check import fault_of
from mileage.workload.trace_request import TraceRequest
from mileage.workload.transforms import TraceView, view

__all__ = ["OpenTrace", "open_trace", "synthetic_of"]

_SYNTHETIC: Final = "synthetic:"
_SQLITE: Final = b"SQLite format 3\0"
_JOURNAL: Final = b"MILEAGEJ"


class OpenTrace:
    """The requests of one trace, by arrival: iterated over once, inside a `with` block.

    They are read as they are asked for; TraceError and ConfigError come then, too.
    """

    def __init__(self, name: str, requests: Iterable[TraceRequest], tally: ReadTally) -> None:
        self.name = name
        """What the trace is called."""
        self.tally = tally
        """What was found so far; of a synthetic one only the format."""
        self._requests: Iterator[TraceRequest] = iter(requests)

    def __iter__(self) -> Iterator[TraceRequest]:
        return self._requests

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Generators that were not read to their end have files open; with the last reference to
        # the outermost one they all end.
        self._requests = iter(())


def open_trace(
    spec: str,
    *,
    options: ReadOptions | None = None,
    part: TraceView | None = None,
    progress: Progress | None = None,
    key: str = "trace",
) -> OpenTrace:
    """The trace that `spec` names, or the part of it that `part` asks for.

    `spec` is a file in a format of read_trace; a ledger (its directory or database); a journal (its
    directory or a segment); a directory of ServeGen's client files; `-`, standard input; the name
    of a data set that was fetched; or `synthetic:` with `key=value,...` (see parse_synthetic) or
    the path of a TOML file with the keys of SyntheticConfig.

    Raises ConfigError, of `key`, for a spec that names nothing, TraceError and LedgerError for what
    cannot be read, here or while it is read.
    """
    options, part = options or ReadOptions(), part or TraceView()
    tally = ReadTally()
    if spec.startswith(_SYNTHETIC):
        tally.format = "synthetic"
        refuse_file_options(options, "a synthetic workload")
        return OpenTrace(spec, view(generate(synthetic_of(spec, seed=options.seed)), part), tally)
    if spec == "-":
        if sys.stdin is None:
            raise ConfigError(key, spec, "standard input to be open")
        lines = stream_lines(sys.stdin.buffer, "stdin")
        requests = told_by_option(read_trace(lines, path="stdin", options=options, tally=tally))
        return OpenTrace("stdin", view(requests, part), tally)
    path = _path_of(spec, key)
    if path.is_dir() and (clients := servegen_files(path)):
        tally.format = "servegen"
        refuse_file_options(options, "made of ServeGen's client files")
        made = servegen_requests(
            servegen_clients(clients),
            seed=options.seed,
            start_s=part.start_s,
            duration_s=part.duration_s,
        )
        return OpenTrace(spec, view(made, replace(part, start_s=0.0)), tally)
    return OpenTrace(spec, view(_recorded(path, options, tally, progress), part), tally)


def _path_of(spec: str, key: str) -> Path:
    """The file or directory that the spec names. Raises ConfigError."""
    try:
        for path in (Path(spec), fetched_path(spec)):
            if spec and path is not None and path.exists():
                return path
    except (OSError, ValueError) as error:  # a name that is too long, a directory that is closed
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(key, spec, f"the name of a trace ({reason})") from None
    raise no_trace(spec, key)


def _recorded(
    path: Path, options: ReadOptions, tally: ReadTally, progress: Progress | None
) -> Iterator[TraceRequest]:
    """Requests of a file, a ledger or a journal."""
    name = str(path)
    if path.is_dir():
        ledger: Path | None = path if (path / DATABASE_NAME).exists() else None
        journal = ledger is None
        if ledger is None and not any(find_journals([path])):
            message = "has no trace: expected a ledger, a journal or ServeGen's client files in it"
            raise TraceError(name, 0, message)
    elif not path.is_file():
        ledger, journal = None, False  # a pipe can be read only once
    else:
        head = binary_head(path, len(_SQLITE))
        ledger = path.parent if head == _SQLITE else None
        if ledger is not None and path.name != DATABASE_NAME:
            raise TraceError(name, 0, f"is a database: expected a ledger, {DATABASE_NAME}")
        journal = head.startswith(_JOURNAL)
    rows: Iterator[Row]
    if ledger is not None:
        tally.format = "ledger"
        refuse_file_options(options, "a ledger")
        rows = timeline_rows(ledger_timelines(ledger), options, tally)
    elif journal:
        tally.format = "journal"
        refuse_file_options(options, "a journal")
        rows = event_rows(journal_handlings(path, progress), options, tally)
    else:
        lines = file_lines(path, progress)
        return told_by_option(read_trace(lines, path=name, options=options, tally=tally))
    return _in_order(rows, name, options, tally)


def _in_order(
    rows: Iterator[Row], name: str, options: ReadOptions, tally: ReadTally
) -> Iterator[TraceRequest]:
    checked = _checked(rows, name)
    yield from in_order(checked, name, tally, places=options.reorder_places, from_first=True)
    if not tally.records:
        raise TraceError(name, 0, f"has no request: expected a {tally.format} with some")


def _checked(rows: Iterator[Row], name: str) -> Iterator[Row]:
    """What engines and clients said was recorded as they said it, and may be no request."""
    for row in rows:
        arrived_s, number, request = row
        # Before the first one: a clock was set back; the order of arrival is made later.
        told = request if arrived_s >= 0.0 else replace(request, arrived_s=0.0)
        if (fault := fault_of(told)) is not None:
            raise TraceError(name, 0, f"record {number}: {fault}")
        yield row


def synthetic_of(spec: str, *, seed: int = 0) -> SyntheticConfig:
    """The configuration that a `synthetic:` spec stands for; `seed` holds where that has none.
    Raises ConfigError."""
    text = spec.removeprefix(_SYNTHETIC)
    if "=" in text or not text.endswith(".toml"):
        try:
            return parse_synthetic(text, seed=seed)
        except ConfigError as error:
            raise error.named(f"{_SYNTHETIC}{error.key}") from None
    try:
        tree = tomllib.loads(Path(text).read_text("utf-8"))
    except OSError as error:
        expected = f"a readable file ({error.strerror or error})"
        raise ConfigError("synthetic", text, expected) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("synthetic", text, f"TOML ({error})") from None
    tree.setdefault("seed", seed)
    return synthetic_config(tree)
