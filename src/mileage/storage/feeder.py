"""Feeder: the thread that keeps the ledger's database up with the request log."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from mileage.core.errors import LedgerError
from mileage.storage.follower import LogFollower, Totals
from mileage.storage.lock import DirectoryLock
from mileage.storage.segment import log_directory, remove_leftovers
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore, may_pass

__all__ = ["Feeder", "FeederStatus"]

RETRY_MAX_S: Final = 10.0
RETENTION_ROWS: Final = 1000
"""Rows deleted in one pass: a short transaction, so that feeding goes on in between."""
RETENTION_PAUSE_S: Final = 60.0
DAY_NS: Final = 86_400 * 1_000_000_000

_log = logging.getLogger(__name__)


class FeederStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The feeder at one moment. Totals are since it started."""

    running: bool
    segments: int
    """Log files on disk that are still needed."""
    lag_bytes: int
    """Written to the log, not read yet."""
    pending_rows: int
    """Read, not committed yet."""
    open_intents: int
    """Requests in flight, as the log shows them."""
    passes_total: int
    """Passes with nothing left to do: what was in the log when one began is committed."""
    rows_total: int
    """Rows committed, lost ones included."""
    lost_total: int
    """Of these: requests whose writer died, or could not write their end."""
    repeated_total: int
    """Ends that were stored already, the same: seen again by a replay."""
    conflicting_total: int
    """Ends whose id was stored already with other values; the stored ones stay."""
    refused_total: int
    """Ends that the database cannot hold."""
    damaged_total: int
    """Places in the log that match no checksum, and segments that cannot be read."""
    unwritten_total: int
    """Ends that their writer could not write, as it told later."""
    error: str | None
    """What keeps the feeder from working now; it tries again by itself."""
    damage: str | None
    """The latest damage found in the log."""


class Feeder:
    """Feeds one ledger directory's log into its database; the only one to do so (DirectoryLock).

    `start` runs it in a thread; `step` does one bounded pass, for whoever has a loop of their own.
    While the database cannot be written (a full disk), `status().error` says so, the log keeps the
    records, and the feeder goes on trying.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        interval_s: float = 0.25,
        batch_rows: int = 5000,
        retention_days: int | None = None,
        nice: int = 5,
        open_store: Callable[[Path], SqliteStore] = SqliteStore,
        clock: Callable[[], float] = time.monotonic,
        utc_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Take the directory and open the database in it.

        Raises LedgerError where another gateway has the directory (with its pid) and where the
        database can never be used (it is none of ours, or of a newer Mileage). A full disk is no
        such case: opening is then tried again. `nice` is added to the niceness of the thread:
        beside a busy data plane on the same core it waits its turn, and still gets a share.
        """
        self._log_directory = log_directory(directory)
        self._database = Path(directory) / DATABASE_NAME
        self._interval_s, self._batch_rows, self._nice = interval_s, batch_rows, nice
        self.retention_days = retention_days
        """Read before each deletion: it may be set while the feeder runs."""
        self._retention_at_s = float("-inf")
        self._open_store, self._clock, self._utc_ns = open_store, clock, utc_ns
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._store: SqliteStore | None = None
        self._follower: LogFollower | None = None
        self._error: str | None = None
        self._passes = 0
        self._lock = DirectoryLock(directory)
        try:
            with suppress(OSError):
                remove_leftovers(self._log_directory, utc_ns())
            self._open()
        except LedgerError as error:
            if not may_pass(error):
                self._lock.release()
                raise
            self._fail(error)

    def start(self) -> None:
        """Run in a thread until `stop`; the first passes replay what earlier gateways left."""
        self._thread = threading.Thread(target=self._run, name="ledger-feeder", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Feed what is in the log, stop, and let the directory go; after the workers have ended.

        False if that took longer than `timeout_s`: the rest stays in the log, for the next start.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                _log.warning("the ledger's feeder is still busy after %.1f s", timeout_s)
                return False
            self._thread = None
        if self._follower is not None:
            self._follower.close()
        self._lock.release()
        return True

    def step(self) -> bool:
        """One pass: feed what is there, then retention. True if another one has work at once.

        Raises LedgerError or OSError; nothing is lost by it, the next pass tries again.
        """
        follower = self._open()
        return follower.step() or self._retain()

    def status(self) -> FeederStatus:
        """The state now; may be called from any thread."""
        follower = self._follower
        tails = follower.tails if follower else []
        totals = follower.totals if follower else Totals()
        return FeederStatus(
            running=self._thread is not None and self._thread.is_alive(),
            segments=len(tails),
            lag_bytes=follower.lag_bytes if follower else 0,
            pending_rows=follower.pending_rows if follower else 0,
            open_intents=sum(len(tail.open) for tail in tails),
            passes_total=self._passes,
            rows_total=totals.rows,
            lost_total=totals.lost,
            repeated_total=totals.repeated,
            conflicting_total=totals.conflicting,
            refused_total=totals.refused,
            damaged_total=totals.damaged,
            unwritten_total=totals.unwritten,
            error=self._error,
            damage=follower.damage if follower else None,
        )

    def _open(self) -> LogFollower:
        if self._follower is None:
            self._store = self._open_store(self._database)
            self._follower = LogFollower(
                self._log_directory, self._store, batch_rows=self._batch_rows
            )
        return self._follower

    def _retain(self) -> bool:
        """Delete some of the rows that are past the retention, when it is time for it."""
        days = self.retention_days
        if days is None or self._store is None or self._stop.is_set():
            return False
        if self._clock() < self._retention_at_s:
            return False
        before_utc_ns = self._utc_ns() - days * DAY_NS
        if self._store.delete_before(before_utc_ns, RETENTION_ROWS) == RETENTION_ROWS:
            return True
        self._retention_at_s = self._clock() + RETENTION_PAUSE_S
        return False

    def _run(self) -> None:
        with suppress(OSError):
            niceness = os.getpriority(os.PRIO_PROCESS, 0) + self._nice
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
        pause_s = self._interval_s
        while True:
            stopping = self._stop.is_set()  # asked before the pass, so that the last one sees all
            more = False
            try:
                more = self.step()
            except Exception as error:  # whatever happens in one pass, the thread outlives it
                self._fail(error)
                pause_s = min(2 * pause_s, RETRY_MAX_S)
            else:
                pause_s = self._interval_s
                if self._error is not None:
                    _log.warning("the ledger's feeder works again")
                    self._error = None
            if more:
                continue
            if self._error is None:
                self._passes += 1
            if stopping:
                return
            self._stop.wait(pause_s)

    def _fail(self, error: Exception) -> None:
        message = str(error) or repr(error)
        if message != self._error:
            foreseen = isinstance(error, LedgerError | OSError)
            _log.error("the ledger cannot be fed: %s", message, exc_info=not foreseen)
        self._error = message
