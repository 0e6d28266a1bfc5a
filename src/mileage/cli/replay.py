"""`mileage replay`: the journal fed to a fresh controller, which must decide the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.console import Console

from mileage import __version__
from mileage.cli.config import journal_directory, load_config
from mileage.cli.progress import Steps
from mileage.cli.replay_report import (
    Damage,
    Decision,
    ReplayReport,
    WhatIfReport,
    WorkerReplay,
    WorkerWhatIf,
    document,
    show_replay,
    show_what_if,
)
from mileage.control.config import ControlConfig
from mileage.control.journal import JournalHeader
from mileage.control.journal_decoder import JournalRecord
from mileage.control.replay import Replayer
from mileage.control.what_if import WhatIf
from mileage.core.errors import TraceError
from mileage.storage.journal_files import JournalFile, find_journals
from mileage.storage.journal_reader import JournalReader

__all__ = ["replay"]

_NOTHING = 3


def replay(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="Journal directories, workers' directories or single files. "
            "[default: the journal of the configuration]",
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration file, mileage.toml.")] = None,
    each: Annotated[
        bool,
        typer.Option("--each", help="Replay each file by itself, from the state it begins with."),
    ] = False,
    show: Annotated[
        int, typer.Option(min=0, max=10_000, help="Show so many of the last decisions.")
    ] = 0,
    what_if: Annotated[
        Path | None,
        typer.Option(
            help="Estimate what would have been with this mileage.toml: requests held, refused, "
            "limits. Engines answer as they did."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Replay the journal: the same events must give the same decisions.

    Works beside a running gateway. Exits with 0 where all was the same, 1 where it was not, 3 where
    there is nothing to replay.

    Example: mileage replay --show 20
    """
    other = None if what_if is None else load_config(what_if, {}).control()
    journals = find_journals(paths) if paths else _own_journals(config)
    console = Console(stderr=True, highlight=False)
    with Steps(console) as steps:
        if other is not None:
            _what_if(journals, other, steps, as_json=as_json)
        else:
            _replay(journals, steps, each=each, show=show, as_json=as_json)


def _own_journals(config: Path | None) -> list[list[JournalFile]]:
    """The journal of the configuration; none where it was never written."""
    directory = journal_directory(load_config(config, {}).journal)
    return find_journals([directory]) if directory.is_dir() else []


def _replay(
    journals: list[list[JournalFile]], steps: Steps, *, each: bool, show: int, as_json: bool
) -> None:
    damages: list[Damage] = []
    decisions: deque[Decision] = deque(maxlen=show)
    workers = []
    for files in journals:
        run = _Replay(decisions)
        walk = _Walk(files, steps, damages, each=each)
        walk.through(run)
        replayer = run.replayer
        workers.append(
            WorkerReplay(
                directory=str(files[0].path.parent),
                segments=walk.segments,
                records=replayer.records,
                restored=replayer.restored,
                ending=walk.ending,
                versions=sorted(walk.versions),
                events=dict(sorted(replayer.events.items())),
                actions=dict(sorted(replayer.actions.items())),
                difference=replayer.difference,
                failed_open=replayer.failed_open,
            )
        )
    report = ReplayReport(
        identical=not damages and all(worker.difference is None for worker in workers),
        records=sum(worker.records for worker in workers),
        version=__version__,
        workers=workers,
        damages=damages,
        decisions=list(decisions),
    )
    if as_json:
        typer.echo(document(report))
    else:
        show_replay(report)
    _exit(identical=report.identical, records=report.records)


def _what_if(
    journals: list[list[JournalFile]], config: ControlConfig, steps: Steps, *, as_json: bool
) -> None:
    damages: list[Damage] = []
    workers = []
    records = 0
    for files in journals:
        run = _Estimate(WhatIf(config))
        _Walk(files, steps, damages, each=False).through(run)
        records += run.records
        directory = str(files[0].path.parent)
        workers.append(WorkerWhatIf(directory=directory, result=run.what_if.result()))
    report = WhatIfReport(records=records, workers=workers, damages=damages)
    if as_json:
        typer.echo(document(report))
    else:
        show_what_if(report)
    _exit(identical=not damages, records=records)


def _exit(*, identical: bool, records: int) -> None:
    if not identical:
        raise typer.Exit(1)
    if not records:
        typer.echo("mileage: nothing to replay: no journal, or nothing in it yet", err=True)
        raise typer.Exit(_NOTHING)


class _Player(Protocol):
    """What is told the records of one worker."""

    def begin(self, header: JournalHeader, source: str, *, goes_on: bool) -> None: ...

    def step(self, record: JournalRecord) -> bool: ...


class _Replay:
    """Requires the same decisions; keeps the last ones to be shown."""

    def __init__(self, decisions: deque[Decision]) -> None:
        self.replayer = Replayer()
        self._decisions = decisions
        self._header: JournalHeader | None = None

    def begin(self, header: JournalHeader, source: str, *, goes_on: bool) -> None:
        """Records of another segment follow."""
        self._header = header
        self.replayer.begin(header, source, goes_on=goes_on)

    def step(self, record: JournalRecord) -> bool:
        """Take one record; whether to go on."""
        header = self._header
        assert header is not None
        if self._decisions.maxlen and (record.actions or record.error):
            after_ns = round((record.now_s - header.began_s) * 1e9)
            at_utc_ns = header.began_at_utc_ns + after_ns
            decision = Decision(worker=header.worker, at_utc_ns=at_utc_ns, record=record)
            self._decisions.append(decision)
        return self.replayer.step(record) is None


class _Estimate:
    """Asks what would have been."""

    def __init__(self, what_if: WhatIf) -> None:
        self.what_if = what_if
        self.records = 0
        self.begin = what_if.begin

    def step(self, record: JournalRecord) -> bool:
        """Take one record; whether to go on."""
        self.records += 1
        self.what_if.step(record)
        return True


class _Walk:
    """Goes through the segments of one worker; damaged ones are noted, and the next is begun."""

    def __init__(
        self, files: list[JournalFile], steps: Steps, damages: list[Damage], *, each: bool
    ) -> None:
        self._files, self._steps, self._damages, self._each = files, steps, damages, each
        self.segments = 0
        self.ending: str | None = None
        """How the last segment ends."""
        self.versions: set[str] = set()
        self._last: JournalHeader | None = None
        self._done_bytes = 0
        self._total_bytes = sum(_size(file) for file in files)

    def through(self, player: _Player) -> None:
        """Tell the player every record, until it says that it is enough."""
        for file in self._files:
            try:
                with JournalReader(file.path) as reader:
                    if not self._segment(file, reader, player):
                        return
            except TraceError as error:
                self._last = None
                if file.path.exists():  # else its writer has removed it: it was the oldest
                    message = (
                        f"record {error.line}: {error.message}" if error.line else error.message
                    )
                    self._damages.append(
                        Damage(path=error.path, record=error.line, message=message)
                    )

    def _segment(self, file: JournalFile, reader: JournalReader, player: _Player) -> bool:
        header = reader.header()
        if header is None:
            self._last = None
            return True
        self.segments += 1
        self.versions.add(header.version)
        player.begin(header, str(file.path), goes_on=self._goes_on(header))
        for record in self._records(file, reader):
            if not player.step(record):
                return False
        self.ending = reader.ending
        self._last = header if self.ending == "rotated" else None
        return True

    def _goes_on(self, header: JournalHeader) -> bool:
        """The segment begins where the last one ended."""
        last = self._last
        if self._each or last is None:
            return False
        return (header.run, header.part) == (last.run, last.part + 1)

    def _records(self, file: JournalFile, reader: JournalReader) -> Iterator[JournalRecord]:
        before = self._done_bytes
        self._done_bytes += reader.size_bytes
        label = f"replaying {file.path.parent.name}"
        return reader.records(lambda done: self._steps(label, before + done, self._total_bytes))


def _size(file: JournalFile) -> int:
    try:
        return file.path.stat().st_size
    except OSError:  # removed meanwhile; told when it is opened
        return 0
