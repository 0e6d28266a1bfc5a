"""Events out of the journal: configurations that came into force, starts of the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mileage.core.errors import MileageError
from mileage.core.events import ConfigChanged
from mileage.doctor.rca.config_change import change_text, changed_keys
from mileage.doctor.rca.events import Event
from mileage.doctor.rca.topology import GATEWAY
from mileage.storage.journal_files import find_journals
from mileage.storage.journal_reader import JournalReader

__all__ = ["journal_events"]

_READ_MAX_BYTES: Final = 128 * 1024 * 1024
_NS: Final = 1e9


def journal_events(directory: Path, since_utc_s: float) -> tuple[list[Event], list[str]]:
    """The events from that time on, and notes on what could not be read.

    Every worker is told of a configuration: the journal of the first is enough, of which at most
    the newest 128 MiB are read.
    """
    journals = find_journals([directory]) if directory.is_dir() else []
    if not journals:
        return [], []
    files, room = [], _READ_MAX_BYTES
    for file in reversed(journals[0]):
        room -= file.path.stat().st_size if file.path.exists() else 0
        if room < 0:
            break
        files.append(file)
    notes: list[str] = []
    found: list[Event] = []
    run: int | None = None
    config: str | None = None
    for file in reversed(files):
        try:
            with JournalReader(file.path) as reader:
                header = reader.header()
                if header is None:
                    continue
                began_s = header.began_at_utc_ns / _NS
                if run is not None and header.run != run:
                    found.append(_start(header.run / 1e6, header.version, config, header.config))
                run, config = header.run, header.config
                for at_s, version, settings in _changes(reader):
                    keys = changed_keys(config, settings)
                    config = settings
                    at_utc_s = began_s + (at_s - header.began_s)
                    found.append(_config(at_utc_s, version, change_text(keys)))
        except MileageError as error:
            notes.append(f"journal: {error}")
    return [event for event in found if event.at_utc_s >= since_utc_s], notes


def _changes(reader: JournalReader) -> Iterator[tuple[float, int, str]]:
    for record in reader.records():
        if isinstance(record.event, ConfigChanged):
            yield record.now_s, record.event.version, record.event.settings


def _config(at_utc_s: float, version: int, detail: str) -> Event:
    return Event(at_utc_s=at_utc_s, kind="config", node=GATEWAY, detail=detail, version=version)


def _start(at_utc_s: float, program: str, before: str | None, config: str) -> Event:
    """A start: of another configuration it is one of that."""
    keys = changed_keys(before, config) if before is not None else []
    if keys:
        return _config(at_utc_s, 1, f"started anew; {change_text(keys)}")
    detail = f"the gateway was started, version {program}"
    return Event(at_utc_s=at_utc_s, kind="restart", node=GATEWAY, detail=detail)
