"""EngineRequestFiles: what engines wrote of requests they have ended, put into the database."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from mileage.core.errors import LedgerError
from mileage.ledger.engine_request import EngineRequest
from mileage.ledger.step_record import STEP_LENGTH
from mileage.storage.connection import Transactions
from mileage.storage.engine_requests import EngineRow, add_engine_requests
from mileage.storage.request_rows import NS_PER_S, bounded
from mileage.storage.step_directory import KEPT_S

__all__ = ["EngineRequestFiles"]

_SUFFIX: Final = ".requests"
_READ_BYTES: Final = 256 << 10
"""Some thousand records: a short transaction."""
_RECORD_BYTES_MAX: Final = 4096
_SECONDS_MAX: Final = 1e7
_ID_MAX: Final = (1 << 63) - 1

_log = logging.getLogger(__name__)
_decode: Final = msgspec.msgpack.Decoder(EngineRequest).decode


class _Part(NamedTuple):
    """What a file has from where it was read to."""

    rows: list[EngineRow]
    lost: int
    end: int


class EngineRequestFiles:
    """Reads `*.requests` of a directory on from where it was, which is in the database, too.

    So each record counts once, whenever this process dies: rows and how far their file is read are
    written in one transaction. What is damaged hides the rest of its file, is logged, and costs
    those requests what their engine said of them, nothing else. What cannot be read, a file or the
    directory, is logged once, left as it is, and tried again.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._reached: dict[str, int] | None = None
        self._seen: dict[str, int] = {}
        """Sizes with which files ended in the middle of a record."""
        self._damaged: set[str] = set()
        self._unread: dict[Path, str] = {}
        """What cannot be read now, and why: it is tried again at each pass."""
        self.error: str | None = None
        """Why the last pass could not go on; None where it could."""
        self.requests_total = 0
        """Records that were stored."""
        self.lost_total = 0
        """That engines could not write, as they said."""

    def store(self, store: Transactions, now_utc_ns: int) -> bool:
        """Store some of what is new; True if there may be more, at once. A failure is told in
        `error`, and the next call tries again: it must not keep others from their turn."""
        try:
            more = self._store(store, now_utc_ns)
        except Exception as error:  # what is in the files is not ours
            message = str(error) or repr(error)
            if message != self.error:
                foreseen = isinstance(error, LedgerError)
                _log.error(
                    "what engines said of requests cannot be stored: %s",
                    message,
                    exc_info=not foreseen,
                )
            self.error = message
            return False
        self.error = next(iter(self._unread.values()), None)
        return more

    def _store(self, store: Transactions, now_utc_ns: int) -> bool:
        sizes = self._sizes()
        if sizes is None:
            return False
        if self._reached is None:
            with store.transaction() as connection:
                found = connection.execute("SELECT name, read_bytes FROM engine_request_files")
                self._reached = {name: int(at) for name, at in found.fetchall()}
        for name in sorted(sizes):
            at = self._reached.get(name, 0)
            if sizes[name] > max(at, self._seen.get(name, 0)) and name not in self._damaged:
                part = self._read(name, at)
                if part is None:
                    continue
                if part.end > at:
                    self._add(store, name, part)
                    return True
                self._seen[name] = sizes[name]
            elif sizes[name] >= 0:
                self._unread.pop(self._directory / name, None)
        self._forget(store, sizes, now_utc_ns)
        return False

    def _add(self, store: Transactions, name: str, part: _Part) -> None:
        assert self._reached is not None
        with store.transaction() as connection:
            add_engine_requests(connection, part.rows)
            connection.execute(
                "INSERT INTO engine_request_files VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET read_bytes = excluded.read_bytes",
                (name, part.end),
            )
        self._reached[name] = part.end
        self.requests_total += len(part.rows)
        if part.lost and not self.lost_total:
            _log.warning("an engine lost records of requests: their queue time is not known")
        self.lost_total += part.lost

    def _sizes(self) -> dict[str, int] | None:
        """Bytes of each file that is there, -1 where unknown; None where no file can be seen."""
        sizes: dict[str, int] = {}
        try:
            names = [name for name in os.listdir(self._directory) if name.endswith(_SUFFIX)]
        except FileNotFoundError:
            names = []
        except OSError as error:
            self._not_read(self._directory, error)
            return None
        self._unread.pop(self._directory, None)
        for name in names:
            try:
                sizes[name] = (self._directory / name).stat().st_size
            except FileNotFoundError:  # removed by its writer meanwhile
                continue
            except OSError as error:
                self._not_read(self._directory / name, error)
                sizes[name] = -1  # it is there: how far it is read must not be forgotten
        return sizes

    def _read(self, name: str, at: int) -> _Part | None:
        """Whole records from there on; None where the file cannot be read now."""
        path = self._directory / name
        try:
            with path.open("rb") as file:
                file.seek(at)
                data = file.read(_READ_BYTES)
        except FileNotFoundError:  # removed by its writer meanwhile
            return None
        except OSError as error:
            self._not_read(path, error)
            return None
        self._unread.pop(path, None)
        rows: list[EngineRow] = []
        lost, end = 0, at
        try:
            for request, used in _records(data):
                end = at + used
                lost += min(max(0, request.lost_requests), 1 << 32)
                if not request.lost_requests and 0 < request.request_id <= _ID_MAX:
                    rows.append(_row(request))
        except (ValueError, RecursionError) as error:  # the latter where lists are in lists
            self._damage(name, f"byte {end}: {error}")
        return _Part(rows, lost, end)

    def _not_read(self, path: Path, error: OSError) -> None:
        what = f"{path}: {error.strerror or error}"
        if self._unread.get(path) != what:
            _log.error("records of requests cannot be read, which is tried again: %s", what)
        self._unread[path] = what

    def _damage(self, name: str, what: str) -> None:
        _log.error("%s: no record of a request at %s; the rest is not read", name, what)
        self._damaged.add(name)

    def _forget(self, store: Transactions, sizes: dict[str, int], now_utc_ns: int) -> None:
        """Delete what is not written to for a day, and is read; forget what is gone."""
        assert self._reached is not None
        old_s = now_utc_ns / NS_PER_S - KEPT_S
        for name in sizes:
            path = self._directory / name
            try:
                if path not in self._unread and path.stat().st_mtime < old_s:
                    path.unlink()
            except OSError:
                continue
        gone = self._reached.keys() - sizes.keys()
        if gone:
            with store.transaction() as connection:
                connection.executemany(
                    "DELETE FROM engine_request_files WHERE name = ?", [(name,) for name in gone]
                )
            for name in gone:
                del self._reached[name]
                self._damaged.discard(name)
                self._seen.pop(name, None)
        for path in self._unread.keys() - {self._directory / name for name in sizes}:
            del self._unread[path]


def _records(data: bytes) -> Iterator[tuple[EngineRequest, int]]:
    """Each whole record, and the bytes up to its end; ValueError for what is none."""
    at = 0
    while len(data) - at >= STEP_LENGTH.size:
        (length,) = STEP_LENGTH.unpack_from(data, at)
        if length > _RECORD_BYTES_MAX:
            raise ValueError(f"{length} bytes long")
        end = at + STEP_LENGTH.size + length
        if end > len(data):
            return
        # msgspec's own error is a ValueError.
        yield _decode(data[at + STEP_LENGTH.size : end]), end
        at = end


def _row(request: EngineRequest) -> EngineRow:
    """With figures that a database can hold."""
    return EngineRow(
        request.request_id,
        request.replica,
        min(max(0, request.ended_at_utc_ns), _ID_MAX),
        _seconds(request.queue_s),
        _seconds(request.prefill_s),
        _seconds(request.decode_s),
        bounded(request.prompt_tokens),
        bounded(request.cached_tokens),
        bounded(request.output_tokens),
        bounded(request.preemptions),
    )


def _seconds(value: float | None) -> float | None:
    if value is None or math.isnan(value) or not 0 <= value <= _SECONDS_MAX:
        return None
    return value
